// Package cluster holds what the API server last reported for this node: the pods to run, the copies of static pods
// (mirror pods), and objects by key. Until the API server has answered, it also holds the pods stored from the last
// time.
//
// Package source writes it and guards it with the lock of its merge. Other packages see only the tables.
package cluster
