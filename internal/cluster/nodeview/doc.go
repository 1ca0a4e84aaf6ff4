// Package nodeview combines the two sources of facts about this node: the Node object, which other parts of the
// cluster write too, and the machine. The machine is used without a cluster, and until the object was received. The
// package owns nothing.
package nodeview
