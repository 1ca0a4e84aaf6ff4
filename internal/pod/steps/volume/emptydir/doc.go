// Package emptydir makes emptyDir volumes: a directory, a tmpfs or a hugetlbfs
// that lives as long as its pod.
//
// It owns kubernetes.io~empty-dir below a pod's volumes. A volume comes into
// being with its mode and group set, so that it is never found half made.
//
// A sizeLimit is the size of the tmpfs or hugetlbfs; on disk Limits measures the
// volume and has the pod evicted, as the kubelet does.
package emptydir
