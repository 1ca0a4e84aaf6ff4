// Package report writes the status of pods to the API server.
//
// For each pod, Writer owns the agent's newest status, the newest known object of the API server, and the time of the
// next try. Package status queues rows with Set, which never blocks. Run sends them.
//
//	status --Set--> row (newest only) --merge--> patch --PATCH pods/status--> API server
//	                                                 \--DELETE, when Gone
//
// The requests of one pod are sent one after the other. Requests of different pods are sent concurrently. Waiting
// pods have this order: terminal phases, then changes of Ready and deletions, then all others. Each class is ordered
// by age, and every eighth pod is the oldest of all. If a pod changes several times while it waits, only its last
// status is sent.
//
// A patch is the difference between the status in the API server and the wanted one, with the pod's UID as
// precondition. The API server's status is taken from the newest of the watch's object and the response to the last
// patch. The object is read only if that may be outdated: after a conflict, or after a request without a response.
//
// A status has several writers. This one keeps the parts of the others: conditions that it does not own
// (podstatus.Foreign), PodScheduled, DisruptionTarget until the phase is terminal, nominatedNodeName, resource claims,
// and resize. If others change its own fields, it writes them again at growing intervals. A field that the API server
// drops, for example an unknown one, is not sent again until something else changes.
//
// If the API server has marked a pod for deletion and the pod is Gone, Writer deletes it with grace period 0. It does
// so after the API server has accepted the last status. Mirror pods are deleted by package mirror.
package report
