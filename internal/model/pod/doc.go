// Package pod holds the values every other package speaks in: the pod as
// somebody wants it (Pod), as the runtime shows it (Observed), and how it is to
// end (Stop).
//
// All of them are immutable once they are shared: a change is a new value.
// The package imports nothing of Berth's and does no I/O.
//
//	desired (Pod) --admission--> worker --steps--> runtime --pleg--> Observed
//	                                ^
//	              Stop --MergeStop--+
package pod
