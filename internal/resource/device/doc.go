// Package device decides which devices of a node a container is given. All of it
// is pure; what there is to give is told by the device plugins (KEP-3573), which
// package internal/device speaks with.
package device
