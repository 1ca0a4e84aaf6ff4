// Package pleg keeps the table of observed pods: what the runtime says runs.
//
// It is the table's only writer. An event of the runtime, or a step that has
// just changed something, only marks a pod; the truth is then read again from
// the runtime. What an event carries is never trusted, and the stream may lose
// events: a slow relist of everything is the audit. A runtime without events is
// relisted every second instead.
//
//	events --mark--> read one pod --> [observed]
//	steps  --Refresh----^                ^
//	audit  --differs?--mark--------------+
//
// One pod that is slow to read holds up neither the others nor the audit.
package pleg
