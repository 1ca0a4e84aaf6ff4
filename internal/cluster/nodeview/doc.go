// Package nodeview is what is known of this node where two can tell: the Node object,
// which the cluster's other parts write too, and the machine, while nothing was heard
// of the object or there is no cluster. It owns nothing.
package nodeview
