// Package identity says which pod and container of Kubernetes a container of Docker is.
//
// It owns the names and labels: they are those of cri-dockerd, so that either program finds the other's pods. It has no
// state.
package identity
