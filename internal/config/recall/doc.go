// Package recall keeps the flags of an agent in its root directory, so that commands find the agent's configuration
// while it does not run. The agent writes them at its start, and commands without an agent read them.
package recall
