// Package transfer moves images between files, registries and the agent, and
// shows on a terminal how far it is.
//
// It owns the line of progress, which is wiped when the transfer ends, and files
// that are being written: they appear once they are complete.
package transfer
