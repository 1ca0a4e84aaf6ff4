// Package container implements the commands that reach into a running pod: exec, attach, cp, debug, logs and
// port-forward. It owns their flags and output. Package stream opens the streams.
package container
