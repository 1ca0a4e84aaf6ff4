// Package index has a table of all containers of Kubernetes in a Docker Engine.
//
// It owns the table, which has a record for each container, and is its only writer. It writes after each event of the
// Engine, and at once after the shim's own calls (Refresh). Lists and statuses read the table and never call the
// Engine. After a lost stream of events, the index lists all containers once.
//
//	events --> pending IDs --> inspect --> observer (logs) --> table --> events of the CRI
package index
