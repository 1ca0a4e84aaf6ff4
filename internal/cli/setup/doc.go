// Package setup implements "berth init": it writes a commented configuration and the systemd unit, and enables the
// unit. It never overwrites a file. The files beside this one are what it writes.
package setup
