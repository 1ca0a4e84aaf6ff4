// Package transfer copies images between files, registries and the agent, and shows the progress on a
// terminal.
//
// It owns the progress line, which it clears when the transfer ends. It also owns the files it writes,
// which appear only when they are complete.
package transfer
