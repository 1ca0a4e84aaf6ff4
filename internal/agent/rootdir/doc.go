// Package rootdir takes away what agents have made in a root directory. It owns the
// list of what that is where the directory is also a kubelet's.
package rootdir
