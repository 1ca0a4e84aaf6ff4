// Package terminal finds out whether a command writes to a terminal, how large that is, and whether it shows colors. It
// owns the colors of Berth's output, so that a color means the same in every command.
package terminal
