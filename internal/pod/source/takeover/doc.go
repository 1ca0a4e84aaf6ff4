// Package takeover finds the running pod of a manifest when a kubelet that ran on the node before has started it under
// its own UID. The kubelet derives the UID of a static pod from a dump of its internal types. Other programs cannot
// compute that UID, so this package searches for the pod.
//
// It owns nothing and writes nothing. Package identity stores the result.
package takeover
