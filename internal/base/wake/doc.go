// Package wake wakes a loop that waits for work. It carries no data: the loop reads what changed from where it is kept.
// A table (package store) wakes its watchers by itself and needs no Signal.
package wake
