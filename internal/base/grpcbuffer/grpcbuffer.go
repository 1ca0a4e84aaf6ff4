package grpcbuffer

import (
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

// Fit replaces gRPC's pool of buffers. That rounds a message of 40 KiB up to 1 MiB, and pods with large
// annotations cause many of them. The new one rounds up to the next power of two. It must be called before the process
// uses gRPC.
func Fit() {
	pool, err := mem.NewBinaryTieredBufferPool(8, 12, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(err) // it refuses only sizes that no machine has
	}
	experimental.SetDefaultBufferPool(pool)
}
