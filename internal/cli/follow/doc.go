// Package follow shows pods from their apply to their end: what they wait for, the timeline of their start,
// their logs, and the resulting exit status. It is the foreground part of "berth run".
//
// It owns the order of these steps. While the pods live, it shows progress and logs. When they end, or an
// interrupt or the timeout ends them, it deletes them. It returns when they are gone and all their output
// is shown. It reads everything from the agent, and the only change it makes is the deletion.
//
//	applied --> waiting --> ready --> ended --> deleted --> gone
//	               |                    ^
//	               +-interrupt, timeout-+
package follow
