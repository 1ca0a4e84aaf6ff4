// Package program installs the programs that the binary carries for the embedded runtime (package assets): runc, the
// shim and the holder at every start, and the CNI plugins when the machine has a CNI configuration that may use them.
//
// It owns the runtime's directory bin. A file's name contains a hash of its content, and the file never changes. Shims
// and containers of an earlier run may still use older files. A link without the hash names the current file, and is
// replaced atomically.
package program
