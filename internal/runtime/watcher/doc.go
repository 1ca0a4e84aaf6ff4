// Package watcher keeps a client of the event stream from holding up the runtime. containerd sends an event to every
// client before the call that caused it goes on, and waits for a client that does not read. A client that stays behind
// loses its stream here.
package watcher
