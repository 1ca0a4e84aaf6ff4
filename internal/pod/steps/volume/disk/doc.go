// Package disk formats and mounts block devices, for the kinds of volumes that use the file system of one. It formats
// an empty device and changes no other content. It keeps nothing: the mount table is its state.
package disk
