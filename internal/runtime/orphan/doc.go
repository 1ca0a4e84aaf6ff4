// Package orphan ends the shims and holders that no containerd knows. If containerd was killed while it started a shim,
// it does not know the shim afterwards. The shim would wait for its first task forever. A holder is unknown if its
// record on disk is damaged or gone. The package owns no state.
package orphan
