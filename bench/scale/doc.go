// Package scale measures whether the cost of a change on a node grows with the pods that do not change: one agent with
// many pods on the fake runtime, whose own cost is near zero. It owns the agent and the runtime. It returns the results
// to bench.
package scale
