// Package storage evicts pods whose files on the node exceed the limits of local storage: sizeLimit of an emptyDir, and
// the limits of ephemeral-storage.
//
//	pods --Limited--> measured now and then (Next) --Exceeded--> evicted
//
// An emptyDir that its file system counts (package quota) is read besides, and more often. The limits and their
// messages are the kubelet's. Package pressure of the agent measures the pods and ends them. A node without a pod with
// limits costs nothing.
package storage
