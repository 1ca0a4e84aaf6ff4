// Package worker gives each pod one goroutine that brings the node to the pod's
// plan: it runs the steps as soon as what they wait for is done, and undoes
// them in reverse when the pod ends.
//
// It owns every goroutine started for a pod. It does not decide (plan does) and
// does not touch the node (the steps do).
//
//	        Stop                nothing runs            all torn down
//	sync ----------> terminating -----------> terminated ------------> gone
//	 ^ |
//	 +-+ a change of pod, observed state, probe verdict, or time
//
// Ending the context detaches: setup is interrupted, nothing is torn down.
package worker
