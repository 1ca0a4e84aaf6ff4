// Package worker gives each pod one goroutine that carries out the pod's plan on the node. It runs each step as soon as
// the steps before it are done, and undoes the steps in reverse when the pod ends.
//
// It owns every goroutine started for a pod. It decides nothing (package plan does) and does not touch the node (the
// steps do).
//
//	        Stop                nothing runs            all torn down
//	sync ----------> terminating -----------> terminated ------------> gone
//	 ^ |
//	 +-+ a change of pod, observed state, probe verdict, or time
//
// When its context ends, a worker detaches: setup is interrupted and nothing is torn down.
package worker
