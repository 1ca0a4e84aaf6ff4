// Package downwardapi says what files a downwardAPI volume has: fields of the
// pod itself.
//
// It owns kubernetes.io~downward-api below a pod's volumes; package payload
// writes it there, in memory as the kubelet does. The files follow the pod: a
// resize in place is a new version of it, and has its volumes made again.
package downwardapi
