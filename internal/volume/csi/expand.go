package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/event"
	"github.com/berth-run/berth/internal/object"
)

// Reasons of events, in the kubelet's words.
const (
	resizeDone   = "FileSystemResizeSuccessful"
	resizeFailed = "VolumeResizeFailed"
)

// grow has the driver give a volume the size that its PersistentVolume has by now,
// and tells the claim (KEP-556). What fails is told and tried again at the next
// pass: the pod has its volume.
func (k *Kind) grow(ctx context.Context, path string, p *published) {
	r := p.request
	if r.Persistent == nil || r.Persistent.Spec.ClaimRef == nil || r.ReadOnly {
		return
	}
	d, err := k.driver(driverName(r))
	if err != nil || !d.has(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		return
	}
	ref := r.Persistent.Spec.ClaimRef
	pv, err := k.o.Objects.PersistentVolume(r.Persistent.Name)
	if err != nil || pv.Spec.CSI == nil {
		return // it is looked at again when the cluster tells of it
	}
	claim, err := k.o.Objects.PersistentVolumeClaim(ref.Namespace, ref.Name)
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	if err != nil || !grows(claim, pv) {
		return
	}
	k.mu.Lock()
	told := p.size == size.String()
	k.mu.Unlock()
	if told { // and the table has not heard of it yet
		return
	}
	if err := k.expand(ctx, d, path, p, pv); err != nil {
		if ctx.Err() == nil {
			k.o.Events.Event(event.PodRef(r.Pod), corev1.EventTypeWarning, resizeFailed, "NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", pv.Name, err)
			k.tellClaim(ctx, claim, failedStatus(claim, infeasible(err)))
		}
		return
	}
	if k.tellClaim(ctx, claim, grownStatus(claim, pv)) {
		k.mu.Lock()
		p.size = size.String()
		k.mu.Unlock()
		k.o.Events.Event(event.PodRef(r.Pod), corev1.EventTypeNormal, resizeDone, "MountVolume.NodeExpandVolume succeeded for volume %q", pv.Name)
	}
}

func (k *Kind) expand(ctx context.Context, d *driver, path string, p *published, pv *corev1.PersistentVolume) error {
	secrets, err := k.secrets(ctx, pv.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return fmt.Errorf("nodeExpandSecretRef: %w", err)
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	q := &csi.NodeExpandVolumeRequest{
		VolumeId: pv.Spec.CSI.VolumeHandle, VolumePath: path, Secrets: secrets, CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
		VolumeCapability: capability(p.request, d.has(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER), false, ""),
	}
	if d.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		q.StagingTargetPath = k.paths(identityOf(p.request)).staging
	}
	if _, err := call(ctx, d.node.NodeExpandVolume, q); err != nil {
		return fmt.Errorf("NodeExpandVolume of CSI driver %s: %w", d.name, err)
	}
	return nil
}

// grownStatus is the patch of a claim's status after an expansion.
func grownStatus(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) map[string]any {
	status := map[string]any{
		"capacity": map[string]any{string(corev1.ResourceStorage): v.Spec.Capacity.Storage().String()},
		"conditions": slices.DeleteFunc(slices.Clone(c.Status.Conditions), func(p corev1.PersistentVolumeClaimCondition) bool {
			return slices.Contains([]corev1.PersistentVolumeClaimConditionType{
				corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimResizing,
				corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
			}, p.Type)
		}),
	}
	if len(c.Status.AllocatedResourceStatuses) > 0 {
		status["allocatedResourceStatuses"] = map[string]any{string(corev1.ResourceStorage): nil}
	}
	return status
}

// failedStatus is the patch after an expansion that failed; nil for none: only one
// that can never succeed is the control plane's to take back (KEP-1790).
func failedStatus(c *corev1.PersistentVolumeClaim, never bool) map[string]any {
	if !never || c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizeInfeasible {
		return nil
	}
	return map[string]any{"allocatedResourceStatuses": map[string]any{string(corev1.ResourceStorage): corev1.PersistentVolumeClaimNodeResizeInfeasible}}
}

// tellClaim patches the claim's status as it was read: another's change of it is
// not overwritten. done is false when it is to be told again.
func (k *Kind) tellClaim(ctx context.Context, c *corev1.PersistentVolumeClaim, status map[string]any) (done bool) {
	if status == nil || k.o.Client == nil {
		return true
	}
	defer func() {
		if k.o.Refresh != nil {
			k.o.Refresh(object.KeyOf(c))
		}
	}()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.UID, "resourceVersion": c.ResourceVersion}, "status": status})
	if err == nil {
		_, err = k.o.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil && ctx.Err() == nil {
		k.o.Log.Warn("tell claim of its size", "claim", c.Namespace+"/"+c.Name, "err", err)
	}
	return err == nil
}
