// Package leftover ends what a container runtime still has of the pods of an agent
// that is being reset: their sandboxes, and the links to their logs. It owns nothing
// and decides nothing: the agent says whose pods they are.
package leftover
