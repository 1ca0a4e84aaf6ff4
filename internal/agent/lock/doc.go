// Package lock makes sure that one agent at a time works on a root directory.
// Whoever runs one, or takes one apart, holds it.
package lock
