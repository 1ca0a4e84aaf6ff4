// Package unpack limits how much disk space image layers and other archives may use once they are unpacked. It wraps
// containerd's reading of every layer in this process. It also syncs each layer. It keeps no state.
package unpack
