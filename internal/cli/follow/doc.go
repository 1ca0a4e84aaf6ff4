// Package follow shows pods from their apply to their end: what they wait for,
// how they came up, their logs, and the exit status they amount to. It is what
// berth run does in the foreground.
//
// It owns the order of that: progress and logs while the pods live; when they
// are asked to end, or have ended by themselves, their deletion; and the return
// once they are gone and all their output is shown. It reads everything from
// the agent and decides nothing about pods but their deletion.
//
//	applied --> waiting --> ready --> ended --> deleted --> gone
//	               |                    ^
//	               +--interrupt, time---+
package follow
