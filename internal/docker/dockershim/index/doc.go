// Package index knows all containers of Kubernetes that a Docker Engine has.
//
// It owns one table with a record for each container, and writes it alone: after each event of the Engine, and at once
// after the shim's own calls (Refresh). Lists and statuses read the table and call the Engine never. After a lost
// stream of events, the index lists all containers once.
//
//	events --> pending IDs --> inspect --> observer (logs) --> table --> events of the CRI
package index
