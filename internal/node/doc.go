// Package node holds the facts of the machine that pods are admitted against:
// what it has, what of that pods may use, its labels and its addresses.
//
// Read looks once and returns a value; nothing here changes the machine. The
// agent reads at start, admission decides with the result, and cgroup bounds
// the pods' part of the machine by it.
package node
