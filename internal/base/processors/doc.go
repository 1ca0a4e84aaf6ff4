// Package processors makes an idle process run its Go code on one processor. It owns the process's GOMAXPROCS.
//
// When a timer fires in an idle process, Go's scheduler wakes a second thread that looks for more work, finds none and
// sleeps again. With one processor it has none to wake. These threads were a quarter of the CPU time of an idle agent.
package processors
