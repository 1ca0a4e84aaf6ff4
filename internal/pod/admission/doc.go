// Package admission decides whether a pod may run on this node, beside the pods that are already here.
//
// It holds an ordered list of rules (Rules), which are pure functions from In to Answer. A table classifies every field
// of a pod's spec (Fields). It keeps no state: the fleet owns the set of admitted pods, and package gate acts on the
// answers.
//
// A kubelet admits a pod or fails it for good. Here there are four answers:
//
//	admit     no rule objects
//	not yet   the missing resource or object will soon be free, or will soon appear; ask again
//	block     this node, as it is now, cannot do what the pod asks for: the pod stays Pending
//	reject    the manifest or the node has to change: the pod is Failed, with the kubelet's reason
package admission
