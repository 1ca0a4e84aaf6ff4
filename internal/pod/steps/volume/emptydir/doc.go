// Package emptydir makes emptyDir volumes: a directory, a tmpfs or a hugetlbfs that lives as long as its pod.
//
// It owns kubernetes.io~empty-dir below a pod's volumes. A volume appears with its mode and group set, so that no
// container finds it incomplete.
//
// The size of a tmpfs or hugetlbfs enforces a sizeLimit. On disk, package storage measures the volume and evicts the
// pod, as the kubelet does. If the file system has project quotas, a volume with a limit is a project of its own
// (package quota). Then the agent measures it without a walk. The quota can also enforce the sizeLimit.
package emptydir
