// Package keyvalue computes the files of a configMap or secret volume: one for each key of the object that the volume
// names, or for the keys that it lists.
//
// It owns kubernetes.io~configmap and kubernetes.io~secret below a pod's volumes. Package payload writes the files: of
// a ConfigMap on disk, of a Secret only in memory, as the kubelet does.
package keyvalue
