// Package tempmount keeps the mounts that containerd makes for a moment in one directory, and removes those that a
// killed process has left.
//
// containerd mounts a layer to read its files (the users of an image, the content of its volumes), and mounts an
// overlay to see whether that works. It unmounts them right after. A process that is killed in between leaves a mount,
// and with it the layer's space on the disk. The package owns these mounts while no runtime runs on the directory.
package tempmount
