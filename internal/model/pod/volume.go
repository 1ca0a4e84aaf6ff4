package pod

// Volume is a volume of a pod that is mounted on this node.
type Volume struct {
	// Path on the host; that of the device with Block, "" with Image.
	Path string
	// Image is the id of the image that the runtime is to mount; "" for what is on
	// the host.
	Image string
	// Block: it is a block device for the container, not a directory.
	Block bool
	// ReadOnly: no mount of it may write.
	ReadOnly bool
	// HostLabels: its files keep the SELinux labels that they have on the host.
	HostLabels bool
	// Groups are the supplemental groups by which processes may use it.
	Groups []int64
}
