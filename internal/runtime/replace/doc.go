// Package replace replaces plugins of containerd that are linked into this program. It does not start containerd.
package replace
