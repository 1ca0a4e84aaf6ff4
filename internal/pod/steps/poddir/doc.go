// Package poddir owns a pod's directory on the node, and everything that follows from pod and host alone: names,
// /etc/hosts and DNS.
//
//	<root>/pods/<uid>/volumes            step volume writes below it
//	<root>/pods/<uid>/plugins            kept for the kubelet's layout
//	<root>/pods/<uid>/containers/<name>  one termination log for each instance
//	<root>/pods/<uid>/etc-hosts          shared by the pod's containers
//	<logs>/<namespace>_<name>_<uid>      logs; the runtime writes, podlog reads
//
// The layout is the kubelet's. The pod's teardown removes the directory. The logs stay until the pod itself is removed,
// so that users can read them after the pod has ended.
package poddir
