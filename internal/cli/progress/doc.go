// Package progress shows how far a transfer is: a bar with the amount, the rate and the time left, in one line of a
// terminal that changes in place.
//
// It owns that line, and clears it when the transfer ends. Nothing is shown if the output is not a terminal.
package progress
