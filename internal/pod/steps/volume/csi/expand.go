package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of events, in the kubelet's words.
const (
	resizeDone     = "FileSystemResizeSuccessful"
	resizeFailed   = "VolumeResizeFailed"
	resizeReadOnly = "FileSystemResizeFailed"
)

// growMounted expands a volume that is about to be used. An error keeps the pod from
// starting, and what the claim has by then decides at the next try: one whose expansion
// can never succeed is not asked for again, and one that the driver does not expand
// while it is in use stays as it is.
func (k *Kind) growMounted(ctx context.Context, path string, p *published) error {
	r := p.request
	if !k.mayExpand(r) {
		return nil
	}
	claim, err := k.o.Objects.PersistentVolumeClaim(r.Persistent.Spec.ClaimRef.Namespace,
		r.Persistent.Spec.ClaimRef.Name)
	if err != nil {
		return err // it is waited for
	}
	if what := expands(claim, r.Persistent, claim.Status.Capacity[corev1.ResourceStorage]); what.size.IsZero() {
		p.size = claim.Status.Capacity[corev1.ResourceStorage]
		return nil // the table is new enough to tell that
	}
	if r.ReadOnly {
		for _, ref := range []corev1.ObjectReference{event.PodRef(r.Pod), claimRef(claim)} {
			k.o.Events.Event(ref, corev1.EventTypeWarning, resizeReadOnly,
				"MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", r.Persistent.Name)
		}
		return nil
	}
	return k.grow(ctx, path, p)
}

// growUsed does so while the volume is in use. What fails is told, and tried again at
// the next pass.
func (k *Kind) growUsed(ctx context.Context, path string, p *published) {
	k.mu.Lock()
	stuck := p.stuck
	k.mu.Unlock()
	if stuck || p.request.ReadOnly || !k.mayExpand(p.request) {
		return
	}
	err := k.grow(ctx, path, p)
	if err == nil || ctx.Err() != nil {
		return
	}
	if _, asked := errors.AsType[*unexpanded](err); !asked { // the API server was
		k.o.Log.Warn("look at the size of a volume", "volume", p.request.Persistent.Name, "err", err)
		return
	}
	k.o.Events.Event(event.PodRef(p.request.Pod), corev1.EventTypeWarning, resizeFailed,
		"NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", p.request.Persistent.Name, err)
}

// mayExpand says that a volume is one whose size the cluster has a say in.
func (k *registry) mayExpand(r volume.Request) bool {
	return k.o.Client != nil && !k.standsIn() && r.Persistent != nil && r.Persistent.Spec.ClaimRef != nil
}

// unexpanded is that a driver has not expanded a volume.
type unexpanded struct{ error }

func (e *unexpanded) Unwrap() error { return e.error }

// grow has the driver give a volume the size that its PersistentVolume has by now, and
// tells the claim. Both are read from the API server, which a node may ask and not
// watch.
func (k *Kind) grow(ctx context.Context, path string, p *published) error {
	r := p.request
	d, err := k.driver(driverName(r))
	if err != nil {
		return err
	}
	k.mu.Lock()
	had := p.size
	k.mu.Unlock()
	g := growth{k.registry, d, path, r}
	claim, pv, err := g.sizes(ctx, had)
	if err != nil {
		return err
	}
	if had.IsZero() {
		had = claim.Status.Capacity[corev1.ResourceStorage]
	}
	stuck := false
	if what := expands(claim, pv, had); !what.size.IsZero() &&
		(what.asked || d.has(csi.NodeServiceCapability_RPC_EXPAND_VOLUME)) {
		had, stuck, err = g.expandTo(ctx, claim, what, had)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.size, p.stuck = had, stuck
	return err
}

// growth is what is done about the size of one volume that is published at path.
type growth struct {
	*registry
	driver *driver
	path   string
	volume.Request
}

// sizes are the claim and the volume that tell how large it is.
func (k growth) sizes(ctx context.Context, had resource.Quantity) (*corev1.PersistentVolumeClaim,
	*corev1.PersistentVolume, error) {
	v := k.Persistent
	claim, err := k.o.Client.CoreV1().PersistentVolumeClaims(v.Spec.ClaimRef.Namespace).Get(ctx, v.Spec.ClaimRef.Name,
		metav1.GetOptions{})
	if err == nil && mayGrow(claim, had) {
		v, err = k.o.Client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
	}
	return claim, v, err
}

// expandTo expands a volume and tells its claim and pod. has is the size that it has
// then; stuck: the driver does not do it while the volume is in use, which is no
// error.
func (k growth) expandTo(ctx context.Context, claim *corev1.PersistentVolumeClaim, what expansion,
	had resource.Quantity) (has resource.Quantity, stuck bool, err error) {
	if what.tell {
		if claim, err = k.tellClaim(ctx, claim, begunStatus(claim)); err != nil {
			return had, false, err // what is known of the claim is old
		}
	}
	if err := k.expand(ctx, what.size); err != nil {
		if what.tell && final(err) {
			_, _ = k.tellClaim(ctx, claim,
				failedStatus(claim, what.size, err,
					metav1.NewTime(k.o.Now()))) // it is in the log, and the driver is asked again
		}
		if status.Code(err) == codes.FailedPrecondition {
			k.o.Log.Warn("a volume is not expanded while it is in use", "volume", k.Persistent.Name, "err", err)
			return had, true, nil
		}
		return had, false, &unexpanded{err}
	}
	if what.tell {
		if _, err := k.tellClaim(ctx, claim, grownStatus(claim, what.size)); err != nil {
			return had, false, err // a driver that has done it does nothing when it is asked again
		}
	}
	for _, ref := range []corev1.ObjectReference{event.PodRef(k.Pod), claimRef(claim)} {
		k.o.Events.Event(ref, corev1.EventTypeNormal, resizeDone,
			"MountVolume.NodeExpandVolume succeeded for volume %q", k.Persistent.Name)
	}
	return what.size, false, nil
}

func claimRef(c *corev1.PersistentVolumeClaim) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: object.PersistentVolumeClaim, APIVersion: "v1", Namespace: c.Namespace,
		Name: c.Name, UID: c.UID}
}

func (k growth) expand(ctx context.Context, size resource.Quantity) error {
	s, d := k.Persistent.Spec.CSI, k.driver
	if !d.has(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		return status.Errorf(codes.Unimplemented, "NodeExpand is not supported by the CSI driver %s", d.name)
	}
	secrets, err := k.secrets(ctx, s.NodeExpandSecretRef)
	if err != nil {
		return fmt.Errorf("nodeExpandSecretRef: %w", err)
	}
	q := &csi.NodeExpandVolumeRequest{
		VolumeId: s.VolumeHandle, VolumePath: k.path, Secrets: secrets,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapability: capability(k.Request, d.has(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER), false,
			""),
	}
	if d.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		q.StagingTargetPath = k.paths(identityOf(k.Request)).staging
	}
	if _, err := call(ctx, d.node.NodeExpandVolume, q); err != nil {
		return fmt.Errorf("NodeExpandVolume of CSI driver %s: %w", d.name, err)
	}
	return nil
}

// storage is a status's map with one value for storage.
func storage(value any) map[string]any { return map[string]any{string(corev1.ResourceStorage): value} }

// begunStatus is the patch of a claim's status before an expansion; nil for none.
func begunStatus(c *corev1.PersistentVolumeClaim) map[string]any {
	if c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimNodeResizePending {
		return nil // it is in progress, or the control plane is too old to know
	}
	return map[string]any{"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimNodeResizeInProgress)}
}

// grownStatus is the patch after it.
func grownStatus(c *corev1.PersistentVolumeClaim, size resource.Quantity) map[string]any {
	status := map[string]any{
		"capacity": storage(size.String()),
		"conditions": slices.DeleteFunc(slices.Clone(c.Status.Conditions),
			func(p corev1.PersistentVolumeClaimCondition) bool {
				return slices.Contains([]corev1.PersistentVolumeClaimConditionType{
					corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimResizing,
					corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
				}, p.Type)
			}),
	}
	if len(c.Status.AllocatedResourceStatuses) > 0 {
		status["allocatedResourceStatuses"] = storage(nil)
	}
	return status
}

// failedStatus is the patch after one that has failed for good. One that can never
// succeed is the control plane's to take back (KEP-1790), as is one that the claim
// does not ask for any more.
func failedStatus(c *corev1.PersistentVolumeClaim, size resource.Quantity, why error, now metav1.Time) map[string]any {
	conditions := slices.DeleteFunc(slices.Clone(c.Status.Conditions),
		func(p corev1.PersistentVolumeClaimCondition) bool {
			return p.Type == corev1.PersistentVolumeClaimNodeResizeError
		})
	patch := map[string]any{"conditions": append(conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, LastTransitionTime: now,
		Message: fmt.Sprintf("failed to expand pvc with %v", why),
	})}
	failedBefore := len(conditions) < len(c.Status.Conditions)
	asked := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if infeasible(why) || failedBefore && asked.Cmp(size) != 0 {
		patch["allocatedResourceStatuses"] = storage(corev1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	return patch
}

// tellClaim patches the claim's status as it was read, and returns it as it is then:
// another's change of it is not overwritten. A nil status changes nothing.
func (k *registry) tellClaim(ctx context.Context, c *corev1.PersistentVolumeClaim,
	status map[string]any) (*corev1.PersistentVolumeClaim, error) {
	if status == nil {
		return c, nil
	}
	if k.o.Refresh != nil {
		defer k.o.Refresh(object.KeyOf(c))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.UID,
		"resourceVersion": c.ResourceVersion}, "status": status})
	if err != nil {
		return c, err
	}
	next, err := k.o.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		if ctx.Err() == nil {
			k.o.Log.Warn("tell claim of its size", "claim", c.Namespace+"/"+c.Name, "err", err)
		}
		return c, fmt.Errorf("patch the status of PersistentVolumeClaim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return next, nil
}
