// Package docker tests the shim for Docker Engines with the machine's own dockerd, and what happens to pods when the
// Engine or the shim ends, hangs or loses something.
package docker
