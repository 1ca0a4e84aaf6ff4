//go:build !faults

package guard

// Point is a place in the work on one pod, or in a call, where a binary that is built with the tag faults can panic. In
// other binaries it does nothing.
func Point(_, _, _ string) {}
