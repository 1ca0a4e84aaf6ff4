// Package docker tests the shim for Docker Engines with the machine's own dockerd. It shows the behaviour of pods when
// the Engine or the shim ends, hangs or loses a container, and runs the upstream kubelet on the shim.
package docker
