// Package report writes the status of pods to the API server.
//
// Writer owns what has been told of each pod: the newest status of the agent, the
// newest object that the API server is known to have, and when to try again. The
// package status hands in rows with Set, which never blocks; Run sends them.
//
//	status --Set--> row (newest only) --merge--> patch --PATCH pods/status--> API server
//	                                                 \--DELETE, when Gone
//
// The requests of one pod follow each other; those of different pods are in flight
// together. Waiting pods go in this order: terminal phases, then changes of Ready and
// deletions, then the rest; each by age, and every eighth is the oldest of all. A pod
// whose state changes several times while it waits is written once, with the last.
//
// A patch is the difference between what the API server has and what it should
// have, with the pod's UID as precondition; nothing is read before it. What the API server
// has is the newest of the watch's object and the answer to the last patch. The object is read only
// when that is not known: after a conflict, or after a request whose answer was lost.
//
// A status has several writers. This one keeps what is others': conditions it does not
// own (podstatus.Foreign), PodScheduled, DisruptionTarget until the phase is terminal,
// nominatedNodeName, resource claims, resize. What others change of its own is
// written again, at growing distances. What the API server does not keep, a field it does not know
// for example, is not sent again until something else changes.
//
// A pod that is Gone is deleted with grace 0 after its last status was taken, if
// the API server has it marked for deletion. Mirror pods are deleted by who makes them.
package report
