// Package lock makes sure that one agent at a time works: on a root directory
// (Root: whoever runs an agent there, or takes one apart, holds it), and
// beside others that have agreed on a file with it (Acquire: --lock-file).
package lock
