// Package identity finds the pod and container of Kubernetes that a container of Docker stands for.
//
// It owns the names and labels. They are cri-dockerd's, so that either program finds the other's pods. It has no state.
package identity
