package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/expansion"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of events, in the kubelet's words.
const (
	resizeDone     = "FileSystemResizeSuccessful"
	resizeFailed   = "VolumeResizeFailed"
	resizeReadOnly = "FileSystemResizeFailed"
)

// expander expands volumes that are smaller than their claims.
type expander struct {
	o       Options
	drivers *driver.Registry
	layout  layout
}

// growMounted expands a volume before the pod uses it. An error keeps the pod from starting. The next try reads the
// claim again, so that an infeasible expansion is not repeated. A volume that the driver does not expand while it is in
// use stays as it is.
func (x expander) growMounted(ctx context.Context, path string, p *published) error {
	r := p.request
	if !x.mayExpand(r) {
		return nil
	}
	claim, err := x.o.Objects.PersistentVolumeClaim(r.Persistent.Spec.ClaimRef.Namespace,
		r.Persistent.Spec.ClaimRef.Name)
	if err != nil {
		return err // the step waits for the claim
	}
	capacity := claim.Status.Capacity[corev1.ResourceStorage]
	if e := expansion.Needed(claim, r.Persistent, capacity); e.Size.IsZero() {
		p.size = capacity
		return nil
	}
	if r.ReadOnly {
		for _, ref := range []corev1.ObjectReference{event.PodRef(r.Pod), claimRef(claim)} {
			x.o.Events.Event(ref, corev1.EventTypeWarning, resizeReadOnly,
				"MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", r.Persistent.Name)
		}
		return nil
	}
	return x.grow(ctx, path, p)
}

// growUsed expands a volume while a pod uses it. A failure is an event or a warning, and the next pass retries.
func (x expander) growUsed(ctx context.Context, path string, p *published) {
	p.mu.Lock()
	offlineOnly := p.offlineOnly
	p.mu.Unlock()
	if offlineOnly || p.request.ReadOnly || !x.mayExpand(p.request) {
		return
	}
	err := x.grow(ctx, path, p)
	if err == nil || ctx.Err() != nil {
		return
	}
	if _, byDriver := errors.AsType[*driverError](err); !byDriver {
		x.o.Log.Warn("cannot compare the size of a volume with its claim, retrying", "volume",
			p.request.Persistent.Name, "err", err)
		return
	}
	x.o.Events.Event(event.PodRef(p.request.Pod), corev1.EventTypeWarning, resizeFailed,
		"NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", p.request.Persistent.Name, err)
}

// mayExpand reports whether the cluster can change the volume's size, and is reachable for it.
func (x expander) mayExpand(r volume.Request) bool {
	return x.o.Client != nil && !x.o.away() && r.Persistent != nil && r.Persistent.Spec.ClaimRef != nil
}

// driverError is the error of a driver that failed to expand a volume.
type driverError struct{ error }

func (e *driverError) Unwrap() error { return e.error }

// grow expands a volume to the size of its PersistentVolume and updates the claim. It reads both from the API server: a
// node may get them and not watch them.
func (x expander) grow(ctx context.Context, path string, p *published) error {
	r := p.request
	d, err := x.drivers.Get(driverName(r))
	if err != nil {
		return err
	}
	p.mu.Lock()
	current := p.size
	p.mu.Unlock()
	g := growth{x, d, path, r}
	claim, pv, err := g.read(ctx, current)
	if err != nil {
		return err
	}
	if current.IsZero() {
		current = claim.Status.Capacity[corev1.ResourceStorage]
	}
	offlineOnly := false
	if e := expansion.Needed(claim, pv, current); !e.Size.IsZero() &&
		(e.Requested || d.Can(csi.NodeServiceCapability_RPC_EXPAND_VOLUME)) {
		current, offlineOnly, err = g.expandTo(ctx, claim, e, current)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size, p.offlineOnly = current, offlineOnly
	return err
}

// growth is the expansion of one volume that is published at path.
type growth struct {
	expander
	driver *driver.Driver
	path   string
	volume.Request
}

// read returns the volume's claim, and its PersistentVolume. It reads the latter only if the claim gives a reason.
func (k growth) read(ctx context.Context, current resource.Quantity) (*corev1.PersistentVolumeClaim,
	*corev1.PersistentVolume, error) {
	v := k.Persistent
	claim, err := k.o.Client.CoreV1().PersistentVolumeClaims(v.Spec.ClaimRef.Namespace).Get(ctx, v.Spec.ClaimRef.Name,
		metav1.GetOptions{})
	if err == nil && expansion.MayGrow(claim, current) {
		v, err = k.o.Client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{})
	}
	return claim, v, err
}

// expandTo expands a volume, updates its claim and writes events. size is the volume's size afterwards. offlineOnly
// says that the driver does not expand the volume while it is in use, which is no error.
func (k growth) expandTo(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, e expansion.Expansion, current resource.Quantity,
) (size resource.Quantity, offlineOnly bool, err error) {
	if e.UpdateClaim {
		if claim, err = k.patchClaim(ctx, claim, expansion.StartedStatus(claim)); err != nil {
			return current, false, err // the claim may have changed
		}
	}
	if err := k.expand(ctx, e.Size); err != nil {
		if e.UpdateClaim && expansion.Final(err) {
			// patchClaim logs its error, and the next try calls the driver again.
			_, _ = k.patchClaim(ctx, claim, expansion.FailedStatus(claim, e.Size, err, metav1.NewTime(k.o.Now())))
		}
		if status.Code(err) == codes.FailedPrecondition {
			k.o.Log.Warn("CSI driver does not expand a volume while it is in use", "volume", k.Persistent.Name, "err",
				err)
			return current, true, nil
		}
		return current, false, &driverError{err}
	}
	if e.UpdateClaim {
		if _, err := k.patchClaim(ctx, claim, expansion.DoneStatus(claim, e.Size)); err != nil {
			return current, false, err // the next call of the driver finds the size and does nothing
		}
	}
	for _, ref := range []corev1.ObjectReference{event.PodRef(k.Pod), claimRef(claim)} {
		k.o.Events.Event(ref, corev1.EventTypeNormal, resizeDone,
			"MountVolume.NodeExpandVolume succeeded for volume %q", k.Persistent.Name)
	}
	return e.Size, false, nil
}

func claimRef(c *corev1.PersistentVolumeClaim) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: object.PersistentVolumeClaim, APIVersion: "v1", Namespace: c.Namespace,
		Name: c.Name, UID: c.UID}
}

func (k growth) expand(ctx context.Context, size resource.Quantity) error {
	s, d := k.Persistent.Spec.CSI, k.driver
	if !d.Can(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		return status.Errorf(codes.Unimplemented, "NodeExpand is not supported by the CSI driver %s", d.Name)
	}
	secrets, err := k.o.secrets(ctx, s.NodeExpandSecretRef)
	if err != nil {
		return fmt.Errorf("nodeExpandSecretRef: %w", err)
	}
	q := &csi.NodeExpandVolumeRequest{
		VolumeId: s.VolumeHandle, VolumePath: k.path, Secrets: secrets,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapability: capability(k.Request, d.Can(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER), false,
			""),
	}
	if d.Can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		q.StagingTargetPath = k.layout.paths(identityOf(k.Request)).staging
	}
	if _, err := driver.Call(driver.Migrated(ctx, k.Migrated), d.Node.NodeExpandVolume, q); err != nil {
		return fmt.Errorf("NodeExpandVolume of CSI driver %s: %w", d.Name, err)
	}
	return nil
}

// patchClaim patches the claim's status and returns the new claim. It fails if the claim has changed since it was read,
// so that it overwrites no other writer's change. A nil status is no patch.
func (x expander) patchClaim(ctx context.Context, c *corev1.PersistentVolumeClaim,
	status map[string]any) (*corev1.PersistentVolumeClaim, error) {
	if status == nil {
		return c, nil
	}
	if x.o.Cluster != nil {
		defer x.o.Cluster.Refresh(object.KeyOf(c))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.UID,
		"resourceVersion": c.ResourceVersion}, "status": status})
	if err != nil {
		return c, err
	}
	next, err := x.o.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		if ctx.Err() == nil {
			x.o.Log.Warn("cannot update the status of a claim, retrying", "claim", c.Namespace+"/"+c.Name, "err", err)
		}
		return c, fmt.Errorf("patch the status of PersistentVolumeClaim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return next, nil
}
