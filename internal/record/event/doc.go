// Package event records Kubernetes events about pods and the node.
//
// It owns the ring of events in memory and the journal events.jsonl on disk. Every step of a pod's life writes through
// Recorder.Event. The local API and the commands read with List and Watch.
//
// A repeated event increases the count of the existing event. Many events that differ only in their text are combined
// into one:
//
//	same object, type, reason and message              -> repeat: count + 1
//	eleventh message of one object, type and reason    -> combine, until 10 min are quiet
//	anything else                                      -> a new event
//
// The journal is written at most once per flush delay (1 s) and only after new events. So a killed agent loses at most
// the events of that delay. Appends are not synced to the disk: a power failure may lose what the kernel has not
// written back. The journal is not a file of package checkpoint, which replaces whole files: an append costs only the
// new lines, however many events are kept.
package event
