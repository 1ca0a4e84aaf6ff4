package ownership

import corev1 "k8s.io/api/core/v1"

// Mode bits as in stat(2).
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeLink = 0o120000
	setgid   = 0o2000
	allBits  = 0o7777
)

// Want describes the ownership that files must get.
type Want struct {
	Group int64
	// ReadOnly: the group may read and not write.
	ReadOnly bool
	// Policy decides when a volume is left as it is. nil is Always.
	Policy *corev1.PodFSGroupChangePolicy
}

// bits are the permissions that the group gets for a file of that mode. As under the kubelet, they are rw-rw----, with
// search and setgid for a directory.
func (w Want) bits(mode uint32) uint32 {
	bits := uint32(0o660)
	if w.ReadOnly {
		bits = 0o440
	}
	if mode&typeMask == typeDir {
		bits |= setgid | 0o110
	}
	return bits
}

// fits reports whether a file needs no change. A link's mode does not count.
func (w Want) fits(mode, gid uint32) bool {
	if int64(gid) != w.Group {
		return false
	}
	bits := w.bits(mode)
	return mode&typeMask == typeLink || mode&bits == bits
}

// skips reports whether the volume is left as it is because its root directory is as wanted (OnRootMismatch). A root
// that is a file decides nothing.
func (w Want) skips(rootMode, rootGID uint32) bool {
	return w.Policy != nil && *w.Policy == corev1.FSGroupChangeOnRootMismatch &&
		rootMode&typeMask == typeDir && w.fits(rootMode, rootGID)
}
