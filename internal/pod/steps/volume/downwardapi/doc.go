// Package downwardapi computes the files of a downwardAPI volume: fields of the pod itself.
//
// It owns kubernetes.io~downward-api below a pod's volumes. Package payload writes the files in memory, as the kubelet
// does. The files follow the pod: an in-place resize is a new version of the pod, and its setup writes them again.
package downwardapi
