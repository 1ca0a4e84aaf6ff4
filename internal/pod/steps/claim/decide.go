package claim

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
)

// Class is the storage class of the volumes that this package makes.
const Class = "local-path"

// AnnotationReclaim of a claim decides the fate of the volume that was made for it when the claim is gone: Delete, the
// default, or Retain.
const AnnotationReclaim = "berth.run/reclaim-policy"

// Binding is a claim and its volume.
type Binding struct {
	// Claim and Volume have their state at the time of the binding.
	Claim  *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
	// Made: this package has made the volume, which is a directory.
	Made bool `json:",omitempty"`
	// Owner is the pod of an ephemeral volume. Its claim was made for it too.
	Owner types.UID `json:",omitempty"`
	// Users are the pods that use the claim.
	Users []types.UID `json:",omitempty"`
	// Released is when the claim was first found gone and unused. It says nothing about the reason.
	Released *time.Time `json:",omitempty"`
	// Origin is where the claim was last read. It is nil if that is unknown, and after "berth delete" of the claim.
	Origin *object.Origin `json:",omitempty"`
	// Deleted is when a user deleted the claim. Without it, the volume is never removed.
	Deleted *time.Time `json:",omitempty"`
}

// choice is the decision how an unbound claim gets a volume.
type choice struct {
	// volume to bind; nil: none fits.
	volume *corev1.PersistentVolume
	// make a directory.
	make bool
	// missing is the name of the volume that the claim names, if it does not exist.
	missing string
	// reason and why say why the claim gets no volume.
	reason, why string
}

// choose finds a volume for a claim. owners has the claim of each bound volume.
func choose(c *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, owners map[string]types.NamespacedName,
	node *corev1.Node) choice {
	var best *corev1.PersistentVolume
	misfits := map[string]int{}
	for _, v := range volumes {
		if c.Spec.VolumeName != "" && v.Name != c.Spec.VolumeName {
			continue
		}
		why := misfit(c, v, node)
		if owner, ok := owners[v.Name]; ok && owner != nameOf(c) {
			why = "bound to another claim"
		}
		if why != "" {
			misfits[why]++
			if c.Spec.VolumeName != "" {
				return choice{reason: reason.FailedBinding,
					why: fmt.Sprintf("volume %q cannot be bound: it is %s", v.Name, why)}
			}
			continue
		}
		if best == nil || better(v, best) {
			best = v
		}
	}
	switch {
	case best != nil:
		return choice{volume: best}
	case c.Spec.VolumeName != "":
		return choice{missing: c.Spec.VolumeName}
	}
	return provision(c, misfits)
}

// better orders fitting volumes: first a volume reserved for the claim, then the smallest, then by name.
func better(v, than *corev1.PersistentVolume) bool {
	unreserved := func(v *corev1.PersistentVolume) int {
		if v.Spec.ClaimRef != nil {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(unreserved(v), unreserved(than)),
		v.Spec.Capacity.Storage().Cmp(*than.Spec.Capacity.Storage()),
		cmp.Compare(v.Name, than.Name)) < 0
}

// misfit returns why a volume does not fit the claim, in words that follow "it is". It returns "" if the volume fits.
func misfit(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, node *corev1.Node) string {
	if r := v.Spec.ClaimRef; r != nil &&
		(cmp.Or(r.Namespace, metav1.NamespaceDefault) != c.Namespace || r.Name != c.Name ||
			r.UID != "" && r.UID != c.UID) {
		return "reserved for another claim (claimRef)"
	}
	if class := c.Spec.StorageClassName; class != nil && *class != v.Spec.StorageClassName ||
		class == nil && v.Spec.StorageClassName != "" && v.Spec.StorageClassName != Class {
		return "of another storage class"
	}
	if modeOf(c.Spec.VolumeMode) != modeOf(v.Spec.VolumeMode) {
		return "of another volumeMode"
	}
	for _, m := range c.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, m) {
			return "without an access mode of the claim"
		}
	}
	if v.Spec.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) < 0 {
		return "too small"
	}
	selector, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
	if err != nil || c.Spec.Selector != nil && !selector.Matches(labels.Set(v.Labels)) {
		return "not selected by the claim's selector"
	}
	if !forNode(v, node) {
		return "for another node (nodeAffinity)"
	}
	return ""
}

func modeOf(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

// provision decides whether to make a directory for a claim that no volume fits.
func provision(c *corev1.PersistentVolumeClaim, misfits map[string]int) choice {
	none := "no persistent volumes available for this claim"
	if len(misfits) > 0 {
		var parts []string
		for _, why := range slices.Sorted(maps.Keys(misfits)) {
			parts = append(parts, fmt.Sprintf("%d %s", misfits[why], why))
		}
		none += " (" + strings.Join(parts, ", ") + ")"
	}
	class := c.Spec.StorageClassName
	policy := c.Annotations[AnnotationReclaim]
	switch {
	case class != nil && *class == "":
		return choice{reason: reason.FailedBinding, why: none + " and no storage class is set"}
	case class != nil && *class != Class:
		return choice{reason: reason.ProvisioningFailed,
			why: fmt.Sprintf(
				"%s, and storageclass.storage.k8s.io %q not found: this node makes volumes of the class %s only", none,
				*class, Class)}
	case modeOf(c.Spec.VolumeMode) == corev1.PersistentVolumeBlock:
		return choice{reason: reason.ProvisioningFailed, why: none + ", and " + Class + " makes no block volumes"}
	case c.Spec.Selector != nil:
		return choice{reason: reason.ProvisioningFailed, why: none + ", and none is made for a claim with a selector"}
	case c.Spec.DataSource != nil || c.Spec.DataSourceRef != nil:
		return choice{reason: reason.ProvisioningFailed,
			why: none + ", and " + Class + " makes empty volumes only: leave out dataSource"}
	case policy != "" && policy != string(corev1.PersistentVolumeReclaimDelete) &&
		policy != string(corev1.PersistentVolumeReclaimRetain):
		return choice{reason: reason.ProvisioningFailed,
			why: fmt.Sprintf("the annotation %s is %q: use Delete or Retain", AnnotationReclaim, policy)}
	}
	return choice{make: true}
}

// directoryVolume is the volume that is made for a claim, with its content in dir.
func directoryVolume(c *corev1.PersistentVolumeClaim, dir string) *corev1.PersistentVolume {
	policy := corev1.PersistentVolumeReclaimDelete
	if c.Annotations[AnnotationReclaim] == string(corev1.PersistentVolumeReclaimRetain) {
		policy = corev1.PersistentVolumeReclaimRetain
	}
	return &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{Kind: "PersistentVolume", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: volumeName(c), UID: c.UID},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: *c.Spec.Resources.Requests.Storage()},
			AccessModes:                   c.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: policy, StorageClassName: Class,
			VolumeMode:             new(corev1.PersistentVolumeFilesystem),
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
		},
	}
}

func volumeName(c *corev1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

// ephemeral is the claim of a pod's ephemeral volume (KEP-1698). A claim without a class gets Class, so that it is not
// bound to a volume whose content outlives the pod.
func ephemeral(p *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolumeClaim {
	name := p.Name + "-" + v.Name
	t := v.Ephemeral.VolumeClaimTemplate
	c := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: p.Namespace, Labels: t.Labels, Annotations: t.Annotations,
			UID: types.UID(string(p.UID) + "-" + v.Name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID,
				Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		Spec: *t.Spec.DeepCopy(),
	}
	if c.Spec.StorageClassName == nil {
		c.Spec.StorageClassName = new(Class)
	}
	return c
}

// fate is the decision about a binding.
type fate int

const (
	keep   fate = iota // the binding stays
	forget             // the binding is deleted
	remove             // the volume's directory is deleted, and then the binding
)

// sight describes the claim and the volume of a binding in one pass.
type sight struct {
	// exists is set if a manifest has the claim. origin is where; nil: unknown.
	exists bool
	origin *object.Origin
	// fate of a claim that no manifest has.
	fate object.Fate
	// volume is set if a manifest has the volume or if the directory of the volume exists.
	volume bool
}

// update returns the binding with what a pass learns about its claim. Only a removed manifest marks a claim as deleted;
// a claim that is merely not seen is not. The mark is withdrawn if the claim exists again, or if its manifest is back:
// that may be faulty and contain the claim.
func update(b Binding, s sight, now time.Time) Binding {
	if s.exists {
		b.Origin, b.Deleted, b.Released = s.origin, nil, nil
		return b
	}
	switch {
	case b.Owner != "": // ends with its pod
	case s.fate == object.Removed && b.Deleted == nil:
		b.Deleted = &now
	case s.fate == object.Present && b.Origin != nil:
		b.Deleted = nil
	}
	switch {
	case len(b.Users) > 0:
		b.Released = nil
	case b.Released == nil:
		b.Released = &now
	}
	return b
}

// removal returns when the volume of a released binding is removed. ok is false if it is kept: the claim was not
// deleted, or the reclaim policy keeps the volume.
func removal(b *Binding, retention time.Duration) (at time.Time, ok bool) {
	if !b.Made || b.Deleted == nil || b.Released == nil ||
		b.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return at, false
	}
	at = *b.Deleted
	if b.Released.After(at) {
		at = *b.Released
	}
	return at.Add(retention), true
}

// end decides about an updated binding. next is when to decide again; zero is after the next change.
func end(b *Binding, s sight, retention time.Duration, now time.Time) (f fate, next time.Time) {
	if s.exists || len(b.Users) > 0 {
		return keep, next
	}
	if b.Owner != "" {
		switch {
		case !b.Made:
			return forget, next
		case b.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
			return remove, next
		}
		return keep, next
	}
	if !s.volume && (b.Made || b.Deleted != nil) {
		return forget, next
	}
	at, ok := removal(b, retention)
	switch {
	case !ok || s.fate == object.Unsure:
		return keep, next
	case now.Before(at):
		return keep, at
	}
	return remove, next
}

// same reports whether an update has changed nothing.
func same(a, b *Binding) bool { return reflect.DeepEqual(a, b) }

// excludes reports whether another pod uses a claim that only one pod may use.
func excludes(b *Binding, uid types.UID) bool {
	return slices.Contains(b.Claim.Spec.AccessModes, corev1.ReadWriteOncePod) &&
		slices.ContainsFunc(b.Users, func(u types.UID) bool { return u != uid })
}

func nameOf(c *corev1.PersistentVolumeClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

// claimStatus is a claim with its status for the local API. b is nil for an unbound claim. lost is set if its volume is
// gone.
func claimStatus(c *corev1.PersistentVolumeClaim, b *Binding, lost bool) *corev1.PersistentVolumeClaim {
	c = c.DeepCopy()
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	if b == nil {
		return c
	}
	c.Spec.VolumeName = b.Volume.Name
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: b.Volume.Spec.AccessModes,
		Capacity: b.Volume.Spec.Capacity}
	if lost {
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost}
	}
	if c.Spec.StorageClassName == nil && b.Volume.Spec.StorageClassName != "" {
		c.Spec.StorageClassName = new(b.Volume.Spec.StorageClassName)
	}
	return c
}

// volumeStatus is a volume with its status for the local API.
func volumeStatus(v *corev1.PersistentVolume, b *Binding, retention time.Duration) *corev1.PersistentVolume {
	v = v.DeepCopy()
	v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}
	if b == nil {
		return v
	}
	v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1",
		Namespace: b.Claim.Namespace, Name: b.Claim.Name, UID: b.Claim.UID}
	v.Status.Phase = corev1.VolumeBound
	if b.Released == nil {
		return v
	}
	v.Status.Phase = corev1.VolumeReleased
	if at, ok := removal(b, retention); ok {
		metav1.SetMetaDataAnnotation(&v.ObjectMeta, object.AnnotationRemoval, at.UTC().Format(time.RFC3339))
		v.Status.Reason = "ClaimDeleted"
		v.Status.Message = fmt.Sprintf("the claim was deleted, and the volume is removed at %s; next: create the "+
			"claim again to keep its data", at.UTC().Format(time.RFC3339))
	} else if b.Deleted == nil && b.Made {
		v.Status.Reason, v.Status.Message = "ClaimMissing", missing(b)
	}
	return v
}

// missing says why the volume of a claim is kept that is in no manifest and was not deleted.
func missing(b *Binding) string {
	from := ""
	if b.Origin != nil {
		from = fmt.Sprintf(" (it came from %s)", b.Origin.Path)
	}
	return fmt.Sprintf("no manifest has the claim%s, but nobody deleted it: the volume is kept; next: bring the claim "+
		"back, or delete it with \"berth delete pvc %s -n %s\"", from, b.Claim.Name, b.Claim.Namespace)
}

// usable returns an error if a pod cannot use a claim of the cluster yet. The texts are the kubelet's.
func usable(c *corev1.PersistentVolumeClaim, p *corev1.Pod, v *corev1.Volume) error {
	switch {
	case v.Ephemeral != nil && !metav1.IsControlledBy(c, p):
		return fmt.Errorf("PVC %q was not created for pod %q (pod is not owner)", nameOf(c), p.Namespace+"/"+p.Name)
	case c.DeletionTimestamp != nil && len(p.Status.ContainerStatuses) == 0:
		return fmt.Errorf("PVC %s is being deleted", nameOf(c))
	case c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName == "":
		return fmt.Errorf("PVC %s has non-bound phase (%q) or empty pvc.Spec.VolumeName (%q)", nameOf(c),
			c.Status.Phase, c.Spec.VolumeName)
	}
	return nil
}

// fits returns an error if a volume is not bound to the claim or cannot be used on this node.
func fits(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, node *corev1.Node) error {
	switch r := v.Spec.ClaimRef; {
	case r == nil:
		return fmt.Errorf("PersistentVolume %s is not bound to any claim (claimRef)", v.Name)
	case r.UID != c.UID:
		return fmt.Errorf(
			"PersistentVolume %s is bound to the claim %s/%s with the UID %s, not to this claim with the UID %s",
			v.Name, r.Namespace, r.Name, r.UID, c.UID)
	}
	if !forNode(v, node) {
		return fmt.Errorf("PersistentVolume %s is for another node (nodeAffinity)", v.Name)
	}
	return nil
}

// forNode reports whether the volume's nodeAffinity allows the node.
func forNode(v *corev1.PersistentVolume, node *corev1.Node) bool {
	a := v.Spec.NodeAffinity
	if a == nil || a.Required == nil {
		return true
	}
	s, err := nodeaffinity.NewNodeSelector(a.Required)
	return err == nil && s.Match(node)
}

// otherUser returns another pod that uses a claim that only one pod may use (ReadWriteOncePod).
func otherUser(
	c *corev1.PersistentVolumeClaim, users map[types.UID]bool, uid types.UID,
) (other types.UID, found bool) {
	if !slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod) {
		return "", false
	}
	for user := range users {
		if user != uid {
			return user, true
		}
	}
	return "", false
}
