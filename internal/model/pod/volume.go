package pod

import corev1 "k8s.io/api/core/v1"

// Volume is a volume of a pod that is mounted on this node.
type Volume struct {
	// Path is the path on the host. It is the path of the device if Block, and empty if Image is set.
	Path string
	// Image is the id of the image that the runtime mounts; "" for a volume on the host.
	Image string
	// Block says that the volume is a block device for the container and not a directory.
	Block bool
	// ReadOnly says that every mount of the volume must be read-only.
	ReadOnly bool
	// HostLabels says that the files keep their SELinux labels from the host.
	HostLabels bool
	// Groups are the supplemental groups through which processes may access the volume.
	Groups []int64
}

// StoresLocally reports whether the files of a volume count as the ephemeral storage of its pod: an emptyDir on disk or
// a ConfigMap, as under the kubelet.
func StoresLocally(v corev1.Volume) bool {
	return v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault
}
