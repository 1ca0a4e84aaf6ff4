package volume

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is one kind of volume source. Publish and Unpublish are what CSI calls
// so: the part that is done for each pod. A kind that can do more says so by
// the interfaces below.
type Kind interface {
	// Dir is the kind's directory below the pod's volumes, spelled as the
	// kubelet spells the plugin, e.g. kubernetes.io~empty-dir. "" for a kind
	// that leaves nothing there.
	Dir() string
	// Serves says whether the volume is of this kind.
	Serves(v *corev1.Volume) bool
	// Publish makes the volume usable and returns its path on the host: a
	// directory, or a file or device where the source names one. It is
	// idempotent. The directory around Target is there.
	Publish(ctx context.Context, r Request) (path string, err error)
	// Unpublish undoes the Publish of this or an earlier process, and removes
	// target. It is idempotent.
	Unpublish(ctx context.Context, target string) error
}

// Stager is a Kind of which one part is done once for the node and shared by
// the pods that use it: a device that is formatted and mounted, which each pod
// then gets a bind of. The framework keeps on disk who uses it.
type Stager interface {
	Kind
	// StageID names the shared part: the same text for all that share it, e.g.
	// a driver and its volume handle. "" when this volume has none. It is pure.
	StageID(r Request) string
	// Stage makes the part usable below r.Stage, an existing directory that
	// is kept between Stage and Unstage. It is idempotent, and not called twice
	// at a time for one StageID.
	Stage(ctx context.Context, r Request) error
	// Unstage undoes the Stage of this or an earlier process, once no pod uses
	// the part. The framework removes the directory after it; what is still
	// mounted there is an error. It is idempotent.
	Unstage(ctx context.Context, stage string) error
}

// Adopter is a Stager whose volumes another agent may have mounted, which keeps their
// users elsewhere.
type Adopter interface {
	Stager
	// Uses are the volumes of pods that are mounted and have a shared part, by what is
	// found on disk. What cannot be read is an error beside those that can.
	Uses() ([]Use, error)
}

// Use is one volume of one pod that uses a shared part.
type Use struct {
	StageID string
	UID     types.UID
	// Volume is a name for it among those of the pod.
	Volume string
}

// Persistent is a Kind that serves the volumes that claims are bound to.
type Persistent interface {
	Kind
	// ServesPersistent says whether the volume is of this kind.
	ServesPersistent(v *corev1.PersistentVolume) bool
}

// Targeted is a Kind whose volumes are not by the pod's name for them in the pod's
// directory.
type Targeted interface {
	Kind
	// TargetName is pure. Volumes of a pod with one name are one, and Publish is
	// called for them side by side.
	TargetName(r Request) string
}

// Featured is a Kind that has something of the framework's done for its volumes.
// One that is not has the zero Features.
type Featured interface {
	Kind
	Features(r Request) Features
}

// Features are what becomes of a volume around Publish. They are asked for before
// it, and FSGroup and HostLabels again after it: by then more may be known.
type Features struct {
	// FSGroup: the volume's files are given to the pod's fsGroup after Publish,
	// unless it is read-only. False for a kind that does so itself and for what
	// is not the pod's own.
	FSGroup bool
	// HostLabels: the content keeps the SELinux labels that it has on the host.
	HostLabels bool
	// Block: the kind can give the volume as a block device (volumeMode Block).
	Block bool
	// ReadOnly: the content is the agent's, no container may write to it.
	ReadOnly bool
	// Remote: the content is a server's, which may not answer: what looks at it is
	// bounded.
	Remote bool
	// Image: what Publish returns is the id of an image, which the runtime mounts
	// for each container.
	Image bool
}

// Opener is a Kind whose path others than the pod may replace. It is opened for
// each container start, and what was opened is what is mounted.
type Opener interface {
	Kind
	// Open opens what the container is to see, for reference (O_PATH). nil for
	// what is to be mounted by its path.
	Open(r Request) (*os.File, error)
}

// Request is one volume of one pod.
type Request struct {
	Pod    *corev1.Pod
	Volume *corev1.Volume
	// Persistent is what the volume's claim is bound to; nil for a source in the
	// pod's own spec.
	Persistent *corev1.PersistentVolume
	// Target is the volume's place in the pod's directory. With Block it is
	// below volumeDevices.
	Target string
	// Stage is the directory of the part that pods share; "" for none.
	Stage string
	// Block: the pod wants the device, and Publish returns it.
	Block bool
	// ReadOnly: no mount of the volume may write.
	ReadOnly bool
}

// Claims finds what a volume's claim is bound to: that of a
// persistentVolumeClaim, or the one made for an ephemeral volume. An
// error such as "waiting for ..." has the volume tried again.
type Claims interface {
	Bound(ctx context.Context, p *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume, error)
	// Released says that the pod has nothing mounted any more. It is idempotent.
	Released(uid types.UID) error
}
