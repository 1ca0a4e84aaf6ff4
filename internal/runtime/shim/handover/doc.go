// Package handover has the arguments and descriptors that one shim's program gets from another: from an agent that has
// kept pidfds, or from the program before, which an upgrade replaces in the same process.
package handover
