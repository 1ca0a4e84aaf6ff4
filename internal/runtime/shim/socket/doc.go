// Package socket has the shim's socket: a lock that lets only one shim at a time serve there, and a listener that
// closes its connections.
//
// The kernel closes the descriptors of a process when its last thread has ended. A thread that waits for a file system
// which does not answer cannot end. So a shim that ends closes its socket and connections itself: callers would wait
// for it, and could not start the next one. A shim that is killed cannot do that. Its callers remove the socket and the
// lock then, see package tasks.
package socket
