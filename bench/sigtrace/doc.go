// Package sigtrace shows when the kernel sent signals, by its trace event signal_generate. It owns an instance of
// tracefs, which no other tracing of the machine sees.
package sigtrace
