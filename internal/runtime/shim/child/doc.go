// Package child waits for the exits of processes: of the children of this process, and of others by a pidfd. A [Reaper]
// takes the exits of all children, so no other code of the program may wait for one.
package child
