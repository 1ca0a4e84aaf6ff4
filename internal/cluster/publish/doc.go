// Package publish sends the events of a recorder to the API server.
//
// Publisher owns the queue of events that are to be sent and the note, on disk, up to
// where they were. It reads event.Recorder.Watch at its own pace and holds nobody up: what
// it is too slow for is counted on, dropped and told of, never waited for.
//
//	Recorder --Watch--> queue (one entry an event, newest count) --CREATE, PATCH--> API server
//
// One event of the recorder is one of the API server, under the same name, whatever
// the number of agents that have sent it: a repeat patches count, time and text; what is
// there already is patched instead of made again. Repeats of an event are patched at growing
// distances, a second first and five minutes at last.
//
// A budget (eventRecordQPS, eventBurst) is shared by class: new warnings, new normal events, then
// repeats. When the queue is full the oldest repeat is dropped first, then the oldest normal
// event. While the API server is away, events wait in the queue.
package publish
