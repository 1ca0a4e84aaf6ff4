// Package inflight counts work in progress, so that an owner can end without leaving work behind. A sync.WaitGroup
// must not grow from 0 while another goroutine waits for it. A Gate may, because it refuses new work once it is closed.
//
//	open: Enter admits --Close--> closing: Enter refuses --last Leave--> closed, the channel of Close is closed
package inflight
