package pod

// Volume is a volume of a pod that is mounted on this node.
type Volume struct {
	// Path on the host; that of the device with Block.
	Path string
	// Block: it is a block device for the container, not a directory.
	Block bool
	// ReadOnly: no mount of it may write.
	ReadOnly bool
	// HostLabels: its files keep the SELinux labels that they have on the host.
	HostLabels bool
	// Groups are the supplemental groups by which processes may use it.
	Groups []int64
}
