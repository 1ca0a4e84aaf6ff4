// Package nodeobject keeps the Node object of this node in the API: it registers it,
// writes its status and watches it for what others write there.
//
// It is the only writer of the status's fields that a node owns; labels, taints
// and conditions of others are theirs. The decisions are pure: Build is what is
// registered, Reconcile what an object that is there already gets at registration,
// Update its status now, Patch the difference on the wire.
//
//	machine, devices, runtime, images, volumes, conditions --> Facts
//	                                                             |
//	the object as it was heard of ----------------------> Update, Changed
//	                                                             |
//	Node() <-- watch on metadata.name <-- API server <-- PATCH status
//
// The status is computed every nodeStatusUpdateFrequency and as soon as a fact
// changes. It is sent when it says something new, and every
// nodeStatusReportFrequency, so that nothing is sent while nothing changes; the
// lease (package lease) is the heartbeat.
//
// As with the kubelet, an object that somebody deletes is not registered again
// before the agent starts anew; when somebody else makes it, it is written to.
package nodeobject
