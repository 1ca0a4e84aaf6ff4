// Package event keeps what happened to pods as Kubernetes events.
//
// It owns the ring of events in memory and the journal events.jsonl on disk. Every step of a
// pod's life writes through Recorder.Event; the local API and the commands read
// with List and Watch.
//
// A repeat is counted on the event that is already there; many events that
// differ by their text alone are combined into one:
//
//	same object, type, reason and message              -> repeat: count + 1
//	eleventh message of one object, type and reason    -> combine, until 10 min are quiet
//	anything else                                      -> a new event
//
// The journal is appended to at most once per flush delay (1 s) and only when
// something happened, so kill -9 loses at most that much. It is not synced to
// the disk at each append: a power failure may lose what the kernel had not
// written back.
package event
