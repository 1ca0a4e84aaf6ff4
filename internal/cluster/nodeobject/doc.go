// Package nodeobject keeps the Node object of this node in the API. It registers the node, writes its status, and
// watches the object for what others write there.
//
// It is the only writer of the status fields that a node owns. Labels, taints and conditions that others set stay as
// they are. The decisions are pure: Build returns the object to register, Reconcile updates an existing object at
// registration, Update sets the current status, and Patch is the difference to send.
//
//	machine, devices, runtime, images, volumes, conditions --> Facts
//	                                                             |
//	the object as last received ------------------------> Update, Changed
//	                                                             |
//	Node() <-- watch on metadata.name <-- API server <-- PATCH status
//
// The status is computed every nodeStatusUpdateFrequency and as soon as a fact changes. It is sent when it has
// changed, and at least every nodeStatusReportFrequency. While nothing changes, almost nothing is sent: the lease
// (package lease) is the heartbeat.
//
// Like the kubelet, the agent does not register a deleted object again before its next start. If somebody else
// creates the object, the agent updates it.
package nodeobject
