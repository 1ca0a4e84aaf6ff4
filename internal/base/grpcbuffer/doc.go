// Package grpcbuffer owns the pool of buffers that gRPC uses in this process. It is apart from package heap so that
// the shim, which has no gRPC server, does not link it.
package grpcbuffer
