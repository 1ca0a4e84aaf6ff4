// Package logfile has what the agent and the shim agree on about the logs of containers: the names of rotated files,
// their limits, and how the shim learns the path of a log. The names are the kubelet's, 0.log.20260301-121000 with the
// time in UTC, and they sort by age.
package logfile
