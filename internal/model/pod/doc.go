// Package pod holds the values that all packages share: the desired pod (Pod), its state in the runtime (Observed), and
// why and how it must end (Stop).
//
// All values are immutable once they are shared: a change is a new value. The package imports no other package of Berth
// and does no I/O.
//
//	desired (Pod) --admission--> worker --steps--> runtime --pleg--> Observed
//	                                ^
//	              Stop --MergeStop--+
package pod
