// Package publish sends the events of a recorder to the API server.
//
// Publisher owns the queue of unsent events and a file that notes the last revision sent. It reads
// event.Recorder.Watch at its own pace and never blocks the recorder. If it is too slow, events are dropped, counted
// and logged.
//
//	Recorder --Watch--> queue (one entry an event, newest count) --CREATE, PATCH--> API server
//
// An event of the recorder has the same name in the API server, even if several agents have sent it. A repeat patches
// count, time and text. An event that exists already is patched. Repeats of an event are patched at intervals that
// grow from one second to five minutes.
//
// The classes share a budget (eventRecordQPS, eventBurst): new warnings go first, then new normal events, then
// repeats. If the queue is full, the oldest repeat is dropped first, then the oldest normal event. While the API
// server is away, events wait in the queue.
package publish
