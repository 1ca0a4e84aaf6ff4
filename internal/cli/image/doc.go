// Package image implements the subcommands of "berth image". It owns their flags and output. Its caller
// supplies the client and the output flag.
package image
