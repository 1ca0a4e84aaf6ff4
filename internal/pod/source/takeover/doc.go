// Package takeover finds the pod that runs for a manifest under a UID that the
// manifest does not give: a kubelet that worked on the node before has started
// it. The kubelet makes the UID of a static pod from a dump of its internal types,
// which nobody else has, so it cannot be computed, only found.
//
// It owns nothing and writes nothing. Package source keeps who was found
// (package identity).
package takeover
