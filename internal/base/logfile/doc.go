// Package logfile has what all writers of the logs of containers agree on: the names of rotated files, their limits,
// how a log is opened so that a container cannot lead it elsewhere, and how the shim learns the path of a log. The
// names are the kubelet's, 0.log.20260301-121000 with the time in UTC, and they sort by age.
package logfile
