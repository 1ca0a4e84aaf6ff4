// Package sysmon makes the monitor of Go's runtime cheap. The monitor is a thread of each Go program. It looks for
// goroutines that run or block for too long. While the program works, it sleeps for 20 µs at a time, so in a program
// that does short work often it takes a good part of the CPU time.
//
// The kernel may delay each sleep of a thread by the thread's timer slack (prctl(2), PR_SET_TIMERSLACK). [Relax] gives
// the monitor a large one. The monitor makes threads, programs start on threads, and both inherit the slack. So what a
// relaxed process starts, it starts with this package. ADR 40 has the measurements.
package sysmon
