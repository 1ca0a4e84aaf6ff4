// Package eviction decides when the node is short of memory, disk space, inodes or processes, and which pods end for
// it.
//
//	observations --Decide--> pressure (node conditions) and crossings (what to act on now)
//	crossing, pods --Rank, Victims--> the pods that have to end
//
// Decide, Choose, NextLook and Message are pure. The Evictor is the loop that calls them: package facts reads the
// machine for it, package alarm wakes it, and the agent sets node conditions and ends pods. The rules are the kubelet's
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/), with one difference: a decision
// names as many victims as the shortfall needs, and not one for each look.
package eviction
