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
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/volume"
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

// identity is the part of a volume that pods share. Its JSON is the StageID.
type identity struct {
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// Block is the name of the PersistentVolume if it is used as a device.
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
	text, _ := json.Marshal(id) // strings cannot fail
	return string(text)
}

// unique is the volume's name in a Node's status.
func (id identity) unique() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + id.Driver + "^" + id.Handle)
}

// check refuses what would lead out of the directories.
func (id identity) check() error {
	for _, name := range []string{id.Driver, id.Block} {
		if strings.Contains(name, "/") || name == "." || name == ".." {
			return fmt.Errorf("%q is no name of a CSI driver or volume", name)
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

// attachmentName is the VolumeAttachment's.
func attachmentName(id identity, node string) string {
	return "csi-" + hash(id.Handle, id.Driver, node)
}

// inlineHandle is the volume id of a pod's own volume.
func inlineHandle(uid types.UID, name string) string { return "csi-" + hash(string(uid), name) }

// claimName is by what the volume is in the pod's directory.
func claimName(r volume.Request) string {
	if r.Persistent != nil {
		return r.Persistent.Name
	}
	return r.Volume.Name
}

func lifecycle(r volume.Request) storagev1.VolumeLifecycleMode {
	if r.Persistent != nil {
		return storagev1.VolumeLifecyclePersistent
	}
	return storagev1.VolumeLifecycleEphemeral
}

// Drivers are the names of the drivers that a pod needs, whose claims have these
// volumes, in order.
func Drivers(p *corev1.Pod, volumes []*corev1.PersistentVolume) (names []string) {
	for i := range p.Spec.Volumes {
		if v := p.Spec.Volumes[i].CSI; v != nil {
			names = append(names, v.Driver)
		}
	}
	for _, v := range volumes {
		if v.Spec.CSI != nil {
			names = append(names, v.Spec.CSI.Driver)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// serves says why a driver does not have volumes of that mode; nil when it does. d
// is nil for one without a CSIDriver object.
func serves(d *storagev1.CSIDriver, driver string, mode storagev1.VolumeLifecycleMode) error {
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

// attaches says that a driver's volumes are attached by a controller.
func attaches(d *storagev1.CSIDriver) bool {
	return d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// attached is what to make of a VolumeAttachment: attached, not yet, or why never.
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

// exhausted says that the node has no room for the volume, whatever CSINode said.
func exhausted(a *storagev1.VolumeAttachment) bool {
	e := a.Status.AttachError
	return e != nil && e.ErrorCode != nil && *e.ErrorCode == int32(codes.ResourceExhausted)
}

// groups says that the agent gives the volume's files to the pod's fsGroup
// (KEP-1682). A driver that takes the group itself is asked elsewhere.
func groups(d *storagev1.CSIDriver, r volume.Request) bool {
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

// podInfo tells a driver for whom it mounts.
func podInfo(p *corev1.Pod, mode storagev1.VolumeLifecycleMode) map[string]string {
	return map[string]string{
		infoName: p.Name, infoNamespace: p.Namespace, infoUID: string(p.UID), infoAccount: p.Spec.ServiceAccountName,
		infoEphemeral: strconv.FormatBool(mode == storagev1.VolumeLifecycleEphemeral),
	}
}

// merged are both, the second's where both have a key.
func merged(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// accessMode is the mode in CSI's words. precise drivers tell one writer from one
// node (SINGLE_NODE_MULTI_WRITER, KEP-2485).
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

// capability is how a volume is to be used. label is the SELinux label to mount it
// with, "" for none; group says that the driver takes the pod's fsGroup.
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

// labelOf is the SELinux options of the label that a volume is mounted with, nil for
// none (KEP-1710): it is one pod's alone, the driver passes the option on, the pod
// wants it so, and all of its containers that use the volume have the same label.
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
					"containers with different SELinux labels (%+v and %+v) use it, and it is mounted with one: give "+
						"them the same seLinuxOptions, or the pod seLinuxChangePolicy: Recursive", *found, *own)
		}
	}
	return found, nil
}

// succeeds is the highest of the versions that a driver names, or why it is not
// used: it speaks none of CSI 1, or another of its name does as well (nil: there is
// none).
func succeeds(before *driver, versions []string) (*version.Version, error) {
	speaks, err := version.HighestSupportedVersion(versions)
	if err != nil {
		return nil, fmt.Errorf("it speaks versions %q of CSI, and this agent version 1", versions)
	}
	if before != nil && !before.version.LessThan(speaks) {
		return nil,
			fmt.Errorf(
				"another driver with the same name is already registered, at %s with version %s: one that takes its "+
					"place needs a higher one than %s", before.endpoint, before.version, speaks)
	}
	return speaks, nil
}

// infeasible says that an expansion will never succeed as it is asked for.
func infeasible(err error) bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.NotFound}, status.Code(err))
}

// expansionNotRequired on a claim says that the control plane has done all of it
// (external-resizer).
const expansionNotRequired = "volume.kubernetes.io/node-expansion-not-required"

// expansion is what is to be done about a volume's size on this node.
type expansion struct {
	// size to expand to; zero: nothing is to be done.
	size resource.Quantity
	// tell the claim of it; else it knows, from another node.
	tell bool
	// asked: the claim says that this node is to do it, whatever its driver can.
	asked bool
}

// mayGrow says that a claim by itself gives reason to look at its volume's size. had
// is what the volume has here.
func mayGrow(c *corev1.PersistentVolumeClaim, had resource.Quantity) bool {
	told := c.Status.Capacity[corev1.ResourceStorage]
	return c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != "" || told.Cmp(had) > 0 ||
		slices.ContainsFunc(c.Status.Conditions, func(s corev1.PersistentVolumeClaimCondition) bool {
			return s.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		})
}

// expands compares what a volume has on this node with what the control plane has
// made of it (KEP-556, KEP-1790): it leaves the size in allocatedResources, and
// whether the node has something to do in allocatedResourceStatuses. An older one
// says nothing there, and the volume's capacity counts. A volume of several nodes is
// expanded on each.
func expands(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, had resource.Quantity) expansion {
	size, told := v.Spec.Capacity[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	if c.Status.Phase != corev1.ClaimBound || had.Cmp(size) >= 0 {
		return expansion{}
	}
	state := c.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok {
		size = allocated
	} else if state == "" {
		return expansion{size: size, tell: told.Cmp(size) < 0}
	}
	many := slices.Contains(c.Spec.AccessModes, corev1.ReadWriteMany) &&
		!metav1.HasAnnotation(c.ObjectMeta, expansionNotRequired)
	switch {
	case state == corev1.PersistentVolumeClaimNodeResizePending,
		state == corev1.PersistentVolumeClaimNodeResizeInProgress:
		return expansion{size: size, tell: true, asked: true}
	case state == "" && many && told.Cmp(size) >= 0:
		return expansion{size: size}
	}
	return expansion{}
}

// final says that a call has failed for good, and nothing of it goes on in the
// driver (CSI specification, "Error Scheme").
func final(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false // it may have been asked before
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	default:
		return true
	}
}
