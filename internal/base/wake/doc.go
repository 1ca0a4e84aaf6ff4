// Package wake wakes a loop that waits for work. A Signal carries no data: the loop reads the changed state itself. A
// Set carries the keys of what has changed. An Alarm wakes the loop at a time. A Broadcast wakes every goroutine that
// waits. A table (package store) wakes its watchers by itself and needs none of these.
package wake
