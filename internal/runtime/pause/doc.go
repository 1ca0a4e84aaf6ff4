// Package pause makes the image of pause containers. A handler with a shim of its own needs one: the shim makes what a
// pod needs, such as a virtual machine, for its pause container. The pods of all other handlers have a holder instead.
package pause
