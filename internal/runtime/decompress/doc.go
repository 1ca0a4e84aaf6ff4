// Package decompress reads compressed layers and archives. containerd's library detects the format and reads it. Only
// zstd has a reader here, whose memory is limited. The package owns no state.
package decompress
