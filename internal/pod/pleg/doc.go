// Package pleg writes the table of observed pods: what runs according to the runtime.
//
// It is the table's only writer. An event of the runtime only marks a pod; its state is then read from the runtime. The
// content of an event is never used, because the stream may lose events. A slow relist of everything (the audit) finds
// what was lost. A runtime without events is relisted every second.
//
//	events --mark--> read one pod --> [observed]
//	steps  --Refresh----^                ^
//	audit  --differs?--mark--------------+
//
// A pod that is slow to read delays neither other pods nor the audit.
package pleg
