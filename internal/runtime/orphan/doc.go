// Package orphan ends the shims that no containerd knows. A containerd that was killed while it started a shim does not
// know the shim afterwards, and the shim would wait for its first task forever. The package owns no state.
package orphan
