// Package fleet decides which pods live on this node. It takes the desired pods through admission, and gives each
// admitted pod a worker. It ends pods that are no longer wanted, and pods found on the node that no source wants.
//
// It owns the set of pods (members) and the order of their admission. One goroutine changes the set. The worker of a
// pod owns the facts about that pod.
//
// New makes the set, empty. So every part that asks about a pod, or wakes it, is made with the fleet. Run gets what it
// looks at and works with (Parts), and keeps the set.
//
//	desired --> pending --admit--> working --worker ended--> gone
//	               |  ^                ^
//	          reject  changed          | orphan: in the runtime, no source wants it
//	               v  |                |
//	             rejected           observed
//
// A rejected pod may run, because an earlier agent has admitted it. It gets a worker that ends it.
//
// A pod of the API server with a deletion timestamp is ended and never admitted again. It gets a worker for that even
// if this agent has never started it, since an earlier agent may have left something of it. When nothing is left, it
// stays a member (Gone) until the API server has removed it. A pod that the API server removes while it runs is ended
// with its own grace period.
//
// Resources of pods that end for the sake of another pod are reserved for that pod (Reserved).
package fleet
