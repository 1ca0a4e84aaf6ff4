package expansion

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// storage is a resource map of a status with a value for storage alone.
func storage(value any) map[string]any { return map[string]any{string(corev1.ResourceStorage): value} }

// StartedStatus is the patch of the claim's status before an expansion, or nil if the status stays as it is.
func StartedStatus(c *corev1.PersistentVolumeClaim) map[string]any {
	if c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimNodeResizePending {
		return nil // it is in progress already, or the control plane is too old for the field
	}
	return map[string]any{"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimNodeResizeInProgress)}
}

// DoneStatus is the patch of the claim's status after a successful expansion.
func DoneStatus(c *corev1.PersistentVolumeClaim, size resource.Quantity) map[string]any {
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

// FailedStatus is the patch of the claim's status after a final failure. It marks the expansion as infeasible if it can
// never succeed, or if it failed before and the claim requests another size by now. Then the control plane may choose a
// smaller size (KEP-1790).
func FailedStatus(c *corev1.PersistentVolumeClaim, size resource.Quantity, why error, now metav1.Time) map[string]any {
	conditions := slices.DeleteFunc(slices.Clone(c.Status.Conditions),
		func(p corev1.PersistentVolumeClaimCondition) bool {
			return p.Type == corev1.PersistentVolumeClaimNodeResizeError
		})
	patch := map[string]any{"conditions": append(conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, LastTransitionTime: now,
		Message: fmt.Sprintf("failed to expand pvc with %v", why),
	})}
	failedBefore := len(conditions) < len(c.Status.Conditions)
	requested := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if infeasible(why) || failedBefore && requested.Cmp(size) != 0 {
		patch["allocatedResourceStatuses"] = storage(corev1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	return patch
}
