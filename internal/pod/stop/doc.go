// Package stop ends pods for the node's sake: preemption, eviction, and rejection after admission. It records the
// events of it and owns nothing: the fleet's workers end the pods.
package stop
