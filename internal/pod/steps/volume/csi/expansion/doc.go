// Package expansion decides how the size of a CSI volume on this node follows its PersistentVolume (KEP-556, KEP-1790):
// whether the node expands the volume, and which patches the claim's status gets. It owns nothing: package csi reads
// the objects, calls the driver and writes the status.
package expansion
