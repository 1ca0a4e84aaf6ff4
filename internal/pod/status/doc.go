// Package status publishes the status of every pod of this node.
//
// It owns the status table, its copy on disk (Record), and the table of pods that the local API serves. Statuses is the
// only writer of both tables. It computes a status with package podstatus, reports it to the API server's side, and
// then writes the row:
//
//	fleet --Publish--+                                  +--> Record (by UID, on disk)
//	                 +--> Source --> podstatus.Compute --+--> Reporter (API server)
//	Stale --Run------+                                  +--> Pods (by name, local API)
//
// There are two ways in. The fleet calls Publish after each pass of a worker and each change of a member, and goes on
// when the status is recorded: a worker plans from the status before, and removes nothing of a pod whose end is not on
// disk. A change of anything else in a status (verdicts of probes, the health of devices, addresses of the node) marks
// the pod in Stale. Run then publishes it again.
//
// The runtime's state of a pod arrives with the worker's pass. So the plan in a status always comes from the same
// state.
package status
