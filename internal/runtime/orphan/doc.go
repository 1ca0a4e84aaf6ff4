// Package orphan ends the shims and holders that no containerd knows. A containerd that was killed while it started a
// shim does not know the shim afterwards, and the shim would wait for its first task forever. A holder is unknown if
// its record on disk is damaged or gone. The package owns no state.
package orphan
