// Package configmap says what files a configMap volume has.
//
// It owns kubernetes.io~configmap below a pod's volumes; package payload writes
// it there, on disk as the kubelet does.
package configmap
