// Package lease keeps the addresses and host ports that pods of the built-in network have: one file for each sandbox.
//
// A lease is on disk before anything of the pod's network exists, and is removed after everything of it is gone. So an
// agent that is killed at any moment knows what it has to remove. The package decides which address is next. It changes
// nothing in the kernel.
package lease
