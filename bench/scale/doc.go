// Package scale measures whether the cost of a change on a node grows with the pods that do not change: one agent with
// many pods on the fake runtime, which costs next to nothing. It owns the agent and the runtime. It returns the results
// to bench.
package scale
