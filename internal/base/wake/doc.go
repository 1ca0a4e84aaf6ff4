// Package wake wakes a loop that waits for work. It carries no data: the loop reads the changed state itself. A table
// (package store) wakes its watchers by itself and needs no Signal.
package wake
