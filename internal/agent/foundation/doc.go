// Package foundation runs the parts of an agent that must end after all other parts, such as the container runtime. It
// owns their goroutines.
package foundation
