// Package heap keeps the agent's memory small: an agent is idle most of the time,
// and gives back what a burst of work took. It owns the garbage collector's
// percentage of the process and nothing else.
package heap
