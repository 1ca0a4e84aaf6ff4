package expansion

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notRequired is the annotation of a claim whose volume needs no expansion on nodes. The external-resizer sets it.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// Expansion describes the expansion of a volume on this node. The zero value is no expansion.
type Expansion struct {
	// Size is the size to expand to; zero is no expansion.
	Size resource.Quantity
	// UpdateClaim is false if the claim's status has the size already, from another node.
	UpdateClaim bool
	// Requested is set if the claim requests the expansion from this node. Then a driver that cannot expand volumes is
	// an error.
	Requested bool
}

// MayGrow reports whether the claim alone is a reason to read the volume's size. current is the size on this node.
func MayGrow(c *corev1.PersistentVolumeClaim, current resource.Quantity) bool {
	claimed := c.Status.Capacity[corev1.ResourceStorage]
	return c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != "" || claimed.Cmp(current) > 0 ||
		slices.ContainsFunc(c.Status.Conditions, func(s corev1.PersistentVolumeClaimCondition) bool {
			return s.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		})
}

// Needed compares current, the size on this node, with the size that the control plane has given the volume. The
// control plane writes that size into the claim's allocatedResources, and into allocatedResourceStatuses whether the
// node has work to do. An older control plane writes neither; then the capacity of the PersistentVolume counts. Each
// node expands a volume that several nodes may use.
func Needed(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, current resource.Quantity) Expansion {
	size, claimed := v.Spec.Capacity[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	if c.Status.Phase != corev1.ClaimBound || current.Cmp(size) >= 0 {
		return Expansion{}
	}
	state := c.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok {
		size = allocated
	} else if state == "" {
		return Expansion{Size: size, UpdateClaim: claimed.Cmp(size) < 0}
	}
	many := slices.Contains(c.Spec.AccessModes, corev1.ReadWriteMany) &&
		!metav1.HasAnnotation(c.ObjectMeta, notRequired)
	switch {
	case state == corev1.PersistentVolumeClaimNodeResizePending,
		state == corev1.PersistentVolumeClaimNodeResizeInProgress:
		return Expansion{Size: size, UpdateClaim: true, Requested: true}
	case state == "" && many && claimed.Cmp(size) >= 0:
		return Expansion{Size: size}
	}
	return Expansion{}
}

// Final reports whether a call of the driver has failed finally, so that the driver no longer works on it (CSI
// specification, "Error Scheme").
func Final(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false // this call did not reach the driver, but an earlier one may have
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	default:
		return true
	}
}

// infeasible reports whether a repetition of the same expansion can never succeed.
func infeasible(err error) bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.OutOfRange, codes.NotFound}, status.Code(err))
}
