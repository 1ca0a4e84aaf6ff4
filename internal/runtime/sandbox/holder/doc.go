// Package holder starts, finds and ends holders: the processes that keep the namespaces of pods open. The program is
// internal/runtime/holder/holder.c.
//
// A holder outlives the agent. The agent that starts it writes an [Identity] to disk before it calls
// [Process.Release]; a later agent passes that identity to [Open]. A holder that is never released ends with the agent
// that started it, so that no holder exists without a record.
package holder
