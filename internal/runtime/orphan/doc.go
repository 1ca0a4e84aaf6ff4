// Package orphan removes what no containerd knows: shims, holders and containers. If containerd was killed while it
// started a shim, it does not know the shim afterwards. The shim would wait for its first task forever. A holder is
// unknown if its record on disk is damaged or gone, and a container if the file with its status is. The package owns no
// state.
package orphan
