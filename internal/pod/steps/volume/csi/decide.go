package csi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/intree"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
)

// Keys of volume contexts and secrets (Kubernetes CSI documentation, "Pod info on
// mount" and "Token requests").
const (
	infoName      = "csi.storage.k8s.io/pod.name"
	infoNamespace = "csi.storage.k8s.io/pod.namespace"
	infoUID       = "csi.storage.k8s.io/pod.uid"
	infoAccount   = "csi.storage.k8s.io/serviceAccount.name"
	infoEphemeral = "csi.storage.k8s.io/ephemeral"
	infoTokens    = "csi.storage.k8s.io/serviceAccount.tokens"
)

// identity identifies the part of a volume that pods share. Its JSON is the StageID.
type identity struct {
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// Block is the name of the PersistentVolume if pods use it as a block device.
	Block string `json:"block,omitempty"`
}

func identityOf(r volume.Request) identity {
	s := r.Persistent.Spec.CSI
	id := identity{Driver: s.Driver, Handle: s.VolumeHandle}
	if r.Block {
		id.Block = r.Persistent.Name
	}
	return id
}

func (id identity) String() string {
	text, _ := json.Marshal(id) // a struct of strings always has JSON
	return string(text)
}

// unique is the volume's name in a Node's status.
func (id identity) unique() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + id.Driver + "^" + id.Handle)
}

// check refuses names that would lead to a path outside the directories of CSI volumes.
func (id identity) check() error {
	for _, name := range []string{id.Driver, id.Block} {
		if err := driver.CheckName(name); err != nil {
			return err
		}
	}
	if id.Driver == "" || id.Handle == "" {
		return fmt.Errorf("the CSI volume names no driver or no volumeHandle")
	}
	return nil
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return hex.EncodeToString(sum[:])
}

// attachmentName is the name of the volume's VolumeAttachment.
func attachmentName(id identity, node string) string {
	return "csi-" + hash(id.Handle, id.Driver, node)
}

// inlineHandle is the volume id of a pod's own volume (inline ephemeral).
func inlineHandle(uid types.UID, name string) string { return "csi-" + hash(string(uid), name) }

// targetName is the name of the volume's directory in the pod's directory, spelled as the kubelet spells it.
func targetName(r volume.Request) string { return strings.ReplaceAll(r.SpecName(), "/", "~") }

func lifecycle(r volume.Request) storagev1.VolumeLifecycleMode {
	if r.Persistent != nil {
		return storagev1.VolumeLifecyclePersistent
	}
	return storagev1.VolumeLifecycleEphemeral
}

// Drivers returns the sorted names of the drivers that a pod needs. volumes are the PersistentVolumes of its claims.
func Drivers(p *corev1.Pod, volumes []*corev1.PersistentVolume) (names []string) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.CSI != nil {
			names = append(names, v.CSI.Driver)
		} else if migrated, ok, err := intree.Inline(v, p.Namespace); ok && err == nil {
			names = append(names, migrated.Spec.CSI.Driver)
		}
	}
	for _, v := range volumes {
		if migrated, ok, err := intree.Persistent(v); ok && err == nil {
			v = migrated
		}
		if v.Spec.CSI != nil {
			names = append(names, v.Spec.CSI.Driver)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkMode returns an error if a driver does not support volumes of a lifecycle mode. d is nil for a driver without a
// CSIDriver object.
func checkMode(d *storagev1.CSIDriver, driver string, mode storagev1.VolumeLifecycleMode) error {
	switch {
	case d == nil && mode == storagev1.VolumeLifecyclePersistent:
		return nil
	case d == nil:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, driver)
	case !slices.Contains(d.Spec.VolumeLifecycleModes, mode):
		return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, driver,
			d.Spec.VolumeLifecycleModes)
	}
	return nil
}

// attaches reports whether a controller attaches the driver's volumes. That is the default.
func attaches(d *storagev1.CSIDriver) bool {
	return d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// attached reports whether a volume is attached. An error means that it is not going to be, and why.
func attached(a *storagev1.VolumeAttachment) (bool, error) {
	switch {
	case a.DeletionTimestamp != nil:
		return false, fmt.Errorf("volume attachment %s is being deleted", a.Name)
	case a.Status.Attached:
		return true, nil
	case a.Status.AttachError != nil:
		return false, fmt.Errorf("attach the volume: %s", a.Status.AttachError.Message)
	}
	return false, nil
}

// exhausted reports whether the controller could not attach the volume for want of room on the node. That can happen
// below the limit in CSINode.
func exhausted(a *storagev1.VolumeAttachment) bool {
	e := a.Status.AttachError
	return e != nil && e.ErrorCode != nil && *e.ErrorCode == int32(codes.ResourceExhausted)
}

// appliesGroup reports whether the driver's policy lets the agent give the volume's files to the pod's fsGroup
// (KEP-1682). Drivers that apply the group themselves are the caller's case.
func appliesGroup(d *storagev1.CSIDriver, r volume.Request) bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if d != nil && d.Spec.FSGroupPolicy != nil {
		policy = *d.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy: // the default
	}
	if r.Persistent == nil {
		return r.Volume.CSI.FSType != nil && *r.Volume.CSI.FSType != ""
	}
	s := r.Persistent.Spec
	return s.CSI.FSType != "" &&
		(slices.Contains(s.AccessModes, corev1.ReadWriteOnce) ||
			slices.Contains(s.AccessModes, corev1.ReadWriteOncePod))
}

// podInfo is the part of the volume context that describes the pod.
func podInfo(p *corev1.Pod, mode storagev1.VolumeLifecycleMode) map[string]string {
	return map[string]string{
		infoName: p.Name, infoNamespace: p.Namespace, infoUID: string(p.UID), infoAccount: p.Spec.ServiceAccountName,
		infoEphemeral: strconv.FormatBool(mode == storagev1.VolumeLifecycleEphemeral),
	}
}

// merged has the entries of a and b. Where both have a key, b wins.
func merged(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// accessMode is the CSI access mode for the first of the volume's modes. A precise driver distinguishes one writer from
// several writers on one node (SINGLE_NODE_MULTI_WRITER, KEP-2485).
func accessMode(modes []corev1.PersistentVolumeAccessMode, precise bool) csi.VolumeCapability_AccessMode_Mode {
	mode := corev1.ReadWriteOnce
	if len(modes) > 0 {
		mode = modes[0]
	}
	switch mode {
	case corev1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case corev1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case corev1.ReadWriteOnce:
		if precise {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case corev1.ReadWriteOncePod:
		if precise {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
	return csi.VolumeCapability_AccessMode_UNKNOWN
}

// capability describes the volume's use to the driver. label is the SELinux label to mount it with, or "" for none.
// group is set if the driver applies the pod's fsGroup.
func capability(r volume.Request, precise, group bool, label string) *csi.VolumeCapability {
	var modes []corev1.PersistentVolumeAccessMode
	m := &csi.VolumeCapability_MountVolume{}
	if r.Persistent != nil {
		modes, m.FsType, m.MountFlags = r.Persistent.Spec.AccessModes, r.Persistent.Spec.CSI.FSType,
			slices.Clone(r.Persistent.Spec.MountOptions)
	} else if t := r.Volume.CSI.FSType; t != nil {
		m.FsType = *t
	}
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessMode(modes, precise)}}
	if r.Block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return c
	}
	if label != "" {
		m.MountFlags = append(m.MountFlags, fmt.Sprintf("context=%q", label))
	}
	if s := r.Pod.Spec.SecurityContext; group && s != nil && s.FSGroup != nil {
		m.VolumeMountGroup = strconv.FormatInt(*s.FSGroup, 10)
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: m}
	return c
}

// labelOf returns the SELinux options of the label to mount a volume with, or nil for none (KEP-1710). There is a label
// if only one pod can use the volume, the driver supports the mount option, and the pod's policy allows it. Containers
// that use the volume with different labels are an error.
func labelOf(d *storagev1.CSIDriver, r volume.Request) (*corev1.SELinuxOptions, error) {
	if d == nil || d.Spec.SELinuxMount == nil || !*d.Spec.SELinuxMount || r.Block || r.Persistent == nil ||
		!slices.Equal(r.Persistent.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) {
		return nil, nil
	}
	var common *corev1.SELinuxOptions
	if s := r.Pod.Spec.SecurityContext; s != nil {
		if s.SELinuxChangePolicy != nil && *s.SELinuxChangePolicy == corev1.SELinuxChangePolicyRecursive {
			return nil, nil
		}
		common = s.SELinuxOptions
	}
	var found *corev1.SELinuxOptions
	for _, c := range pod.Containers(r.Pod) {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == r.Volume.Name }) {
			continue
		}
		own := common
		if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
			own = c.SecurityContext.SELinuxOptions
		}
		switch {
		case own == nil:
		case found == nil:
			found = own
		case *found != *own:
			return nil,
				fmt.Errorf(
					"containers with different SELinux labels (%+v and %+v) use the volume, which is "+
						"mounted with one: "+
						"give them the same seLinuxOptions, or the pod seLinuxChangePolicy: Recursive", *found, *own)
		}
	}
	return found, nil
}
