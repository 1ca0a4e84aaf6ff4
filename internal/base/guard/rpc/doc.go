// Package rpc keeps a panic in the handler of a gRPC call from ending the process. Only the call fails, and a client of
// this package gets the panic with its stack. A panic in a goroutine that the handler has started still ends the
// process.
package rpc
