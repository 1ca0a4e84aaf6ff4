// Package admission decides whether a pod may live on this node, beside those
// that do already.
//
// It holds an ordered list of rules, pure functions from In to Answer, and a
// table that classifies every field of a pod's spec (Fields). It keeps no state:
// who is admitted is the fleet's table, who reads an answer acts on it.
//
// Where the kubelet admits or fails a pod for ever, there are four answers:
//
//	admit     nothing speaks against it
//	not yet   what is missing is about to be free, or to come; ask again
//	block     the node as it is cannot give what the pod asks for: it stays Pending
//	reject    with the kubelet's reason: the manifest or the node has to change
package admission
