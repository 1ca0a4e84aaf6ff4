// Package fleet decides which pods live on this node: it takes the desired
// pods through admission, gives each admitted one a worker, and ends what is no
// longer wanted or was never known.
//
// It owns the set of pods (members) and the order in which they are admitted;
// one goroutine changes it. Facts about a single pod are the worker's.
//
//	desired --> pending --admit--> working --worker ended--> gone
//	               |  ^                ^
//	          reject  changed          | orphan: seen in the runtime, wanted by nobody
//	               v  |                |
//	             rejected           observed
//
// A rejected pod that runs, since an earlier agent, gets a worker that ends it.
//
// A pod of the API with a deletion timestamp is ended and never admitted again: it
// gets a worker for that also when none began it here, for what an earlier agent
// may have left of it. When nothing is left it stays a member (Gone) until the API
// has dropped it. What the API drops while it runs is ended with its own grace.
//
// What pods that end hold is kept for the one that they were ended for (Reserved).
package fleet
