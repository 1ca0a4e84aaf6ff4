// Package leftover removes the sandboxes of pods from a container runtime during a reset, and the links to their logs.
// It owns nothing and decides nothing: the agent chooses the sandboxes.
package leftover
