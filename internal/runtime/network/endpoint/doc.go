// Package endpoint attaches pods to the built-in network and detaches them.
//
//	Attach: lease on disk --> devices --> limits --> packet filter
//	Detach: packet filter --> devices (in the background) --> lease removed
//
// A pod has a lease before anything else, and until everything else is gone. So a later agent knows what an agent that
// was killed has left. The package owns the leases, the devices of pods and the packet filter table. The bridge belongs
// to its caller.
package endpoint
