// Package cluster is what the API server has for this node, as it was said last:
// the pods that are to run here, the copies of static pods (mirror pods), and
// objects by key. It also holds the pods that stand in for them while the API server
// has not been heard.
//
// Package source writes it and guards it by the lock of its merge; nothing else
// sees it but by way of the tables.
package cluster
