// Package heap keeps the memory of the agent and of a shim small: they are idle most of the time, and return the memory
// that a burst of work has used. It owns when Go collects garbage in the process.
package heap
