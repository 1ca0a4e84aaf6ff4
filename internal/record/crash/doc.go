// Package crash keeps the reports of agents that ended with a panic.
//
// It owns a directory. The Go runtime writes the text of a panic that nothing recovered, with its stack, into the file
// "current" there (Open). The next agent finds the file, gives it a name of its own and reports it.
package crash
