// Package leftover finds the pods that earlier agents have left on a node: by their directories, volumes, cgroups,
// claims and devices. It owns nothing.
package leftover
