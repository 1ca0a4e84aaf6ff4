// Package transfer copies images between files, registries and the agent, with a progress bar on a terminal.
//
// It owns the files it writes, which appear only when they are complete.
package transfer
