package volume

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is one kind of volume source. As in CSI, Publish and Unpublish are the part that each pod has alone. A kind that
// can do more implements some of the interfaces below.
type Kind interface {
	// Dir is the name of the kind's directory below the pod's volumes. It is spelled as the kubelet spells the plugin,
	// e.g. kubernetes.io~empty-dir. It is empty for a kind without a directory.
	Dir() string
	// Serves reports whether the volume is of this kind.
	Serves(v *corev1.Volume) bool
	// Publish makes the volume usable and returns its path on the host: a directory, or a file or device where the
	// source names one. It is idempotent. The parent directory of Target exists.
	Publish(ctx context.Context, r Request) (path string, err error)
	// Unpublish undoes the Publish of this or an earlier process, and removes
	// target. It is idempotent.
	Unpublish(ctx context.Context, target string) error
}

// Stager is a Kind with a part that is made once for the node and shared by the pods that use it. An example is a
// device that is formatted and mounted once; each pod gets a bind mount of it. Volumes keeps the users of each part on
// disk.
type Stager interface {
	Kind
	// StageID identifies the shared part, e.g. by a driver and its volume handle. Volumes with the same StageID share
	// the part. It is empty if the volume has none. It is pure.
	StageID(r Request) string
	// Stage makes the part usable below r.Stage, a directory that exists from Stage to Unstage. It is idempotent. There
	// is one call at a time for each StageID.
	Stage(ctx context.Context, r Request) error
	// Unstage undoes the Stage of this or an earlier process, once no pod uses the part. Volumes then removes the
	// directory; a mount left in it is an error. It is idempotent.
	Unstage(ctx context.Context, stage string) error
}

// Adopter is a Stager whose volumes another agent may have mounted that keeps their users elsewhere, such as a kubelet.
type Adopter interface {
	Stager
	// Uses returns the mounted volumes of pods that have a shared part, from what is on disk. It returns those that it
	// can read together with an error for the others.
	Uses() ([]Use, error)
}

// Use is the use of a shared part by one volume of one pod.
type Use struct {
	StageID string
	UID     types.UID
	// Volume identifies the volume among the volumes of the pod.
	Volume string
}

// Persistent is a Kind that serves PersistentVolumes.
type Persistent interface {
	Kind
	// ServesPersistent reports whether the volume is of this kind.
	ServesPersistent(v *corev1.PersistentVolume) bool
}

// Targeted is a Kind that chooses the names of its volumes in the pod's directory. Other volumes have the name in the
// pod's spec.
type Targeted interface {
	Kind
	// TargetName is pure. Volumes of a pod with the same TargetName are one volume, and Publish may run for them at the
	// same time.
	TargetName(r Request) string
}

// Branded is a Kind whose volumes are in directories with the names of its drivers. Dir is then only the name of the
// directory for shared parts.
type Branded interface {
	Kind
	// DirOf is the name of the directory of a volume in the pod's directory. It is pure.
	DirOf(r Request) string
	// OwnsDir reports whether a directory in the pod's directory can be one of this kind.
	OwnsDir(name string) bool
}

// Attachments are the volumes that a controller of the cluster attaches to this node.
type Attachments interface {
	// Attached reports a volume as in use, and waits until the controller has attached it. It returns the device, which
	// is empty if the controller knows none. stage is Request.Stage.
	Attached(ctx context.Context, name corev1.UniqueVolumeName, stage string) (device string, err error)
	// Release lets the controller detach a volume. Without a name it is the volume that Attached was last called for
	// with this stage, also by an earlier process. It is idempotent.
	Release(name corev1.UniqueVolumeName, stage string) error
}

// Featured is a Kind that needs extra treatment of its volumes. A Kind that is not Featured has the zero Features.
type Featured interface {
	Kind
	Features(r Request) Features
}

// Features holds the treatment of a volume by Volumes around Publish. They are read before Publish, and FSGroup and
// HostLabels again after it, because a kind may know more by then.
type Features struct {
	// FSGroup: after Publish, the volume's files are given to the pod's fsGroup, unless the volume is read-only. It is
	// false for a kind that does so itself and for files that do not belong to the pod.
	FSGroup bool
	// HostLabels: the content keeps its SELinux labels from the host.
	HostLabels bool
	// Block: the kind can serve the volume as a block device (volumeMode Block).
	Block bool
	// ReadOnly: the agent owns the content, and no container may write to it.
	ReadOnly bool
	// Remote: the content is on a server that may not answer. Accesses to it have a time limit.
	Remote bool
	// Image: Publish returns the id of an image, which the runtime mounts for each container.
	Image bool
}

// Opener is a Kind whose path another program than the pod may replace. The path is opened for each container start,
// and the open file is mounted.
type Opener interface {
	Kind
	// Open opens the file that the container gets, for reference only (O_PATH). It returns nil if the container mounts
	// the path itself.
	Open(r Request) (*os.File, error)
}

// Request is one volume of one pod.
type Request struct {
	Pod    *corev1.Pod
	Volume *corev1.Volume
	// Persistent is the PersistentVolume that the volume's claim is bound to. It is nil for a source in the pod's own
	// spec.
	Persistent *corev1.PersistentVolume
	// Migrated: Persistent is the CSI volume that an in-tree volume of a cloud was translated to. For a source in the
	// pod's own spec, it describes a volume that is not an object of the cluster.
	Migrated bool
	// Target is the volume's path in the pod's directory. With Block it is below volumeDevices.
	Target string
	// Stage is the directory of the part that pods share, or "" for none.
	Stage string
	// Block: the pod uses the volume as a block device, and Publish returns the device.
	Block bool
	// ReadOnly: no mount of the volume may write.
	ReadOnly bool
}

// SpecName is the name of the PersistentVolume, or of the pod's own volume. The name of a migrated volume may have
// slashes.
func (r Request) SpecName() string {
	if r.Persistent != nil {
		return r.Persistent.Name
	}
	return r.Volume.Name
}

// Claims finds the PersistentVolume for a volume's claim: for a persistentVolumeClaim, or for the claim made for an
// ephemeral volume. After an error such as "waiting for ..." the volume is mounted again later.
type Claims interface {
	Bound(ctx context.Context, p *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume, error)
	// Released reports that nothing of the pod is mounted any more. It is idempotent.
	Released(uid types.UID) error
}
