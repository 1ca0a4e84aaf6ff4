// Package replace finds and replaces plugins of containerd that are linked into this program, and finds its private
// fields. It does not start containerd.
package replace
