package expansion

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNeeded(t *testing.T) {
	const gi = 1 << 30
	size := func(n int64) resource.Quantity { return *resource.NewQuantity(n*gi, resource.BinarySI) }
	list := func(n int64) corev1.ResourceList { return corev1.ResourceList{corev1.ResourceStorage: size(n)} }
	state := func(s corev1.ClaimResourceStatus) map[corev1.ResourceName]corev1.ClaimResourceStatus {
		return map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: s}
	}
	many := corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}
	tests := map[string]struct {
		claim             corev1.PersistentVolumeClaim
		capacity, current int64 // of the PersistentVolume, and on this node, in GiB
		want              Expansion
	}{
		"size unchanged": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1)}}, 1, 1,
			Expansion{}},
		"older control plane without allocatedResources": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1)}}, 2, 1,
			Expansion{Size: size(2), UpdateClaim: true}},
		"node expansion pending": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimNodeResizePending)}}, 2, 1,
			Expansion{Size: size(2), UpdateClaim: true, Requested: true}},
		"node expansion in progress": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimNodeResizeInProgress)}}, 2, 1,
			Expansion{Size: size(2), UpdateClaim: true, Requested: true}},
		"controller expansion in progress": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimControllerResizeInProgress)}}, 2, 1,
			Expansion{}},
		"node expansion infeasible": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimNodeResizeInfeasible)}}, 2, 1,
			Expansion{}},
		"less allocated than the capacity": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimNodeResizePending)}}, 3, 1,
			Expansion{Size: size(2), UpdateClaim: true, Requested: true}},
		"done by the controller": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(2),
				AllocatedResources: list(2)}}, 2, 1, Expansion{}},
		"shared volume, done on another node": {corev1.PersistentVolumeClaim{Spec: many,
			Status: corev1.PersistentVolumeClaimStatus{Capacity: list(2), AllocatedResources: list(2)}}, 2, 1,
			Expansion{Size: size(2)}},
		"shared volume, no node expansion required": {
			corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{notRequired: "true"}}, Spec: many,
				Status: corev1.PersistentVolumeClaimStatus{Capacity: list(2), AllocatedResources: list(2)}}, 2, 1,
			Expansion{}},
	}
	for name, test := range tests {
		test.claim.Status.Phase = corev1.ClaimBound
		v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: list(test.capacity)}}
		got := Needed(&test.claim, v, size(test.current))
		if got.Size.Cmp(test.want.Size) != 0 || got.UpdateClaim != test.want.UpdateClaim ||
			got.Requested != test.want.Requested {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestExpansionStatus(t *testing.T) {
	now := metav1.Unix(1000, 0)
	c := &corev1.PersistentVolumeClaim{
		Spec: corev1.PersistentVolumeClaimSpec{
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}}},
		Status: corev1.PersistentVolumeClaimStatus{
			Conditions: []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimFileSystemResizePending}, {Type: "Other"}},
			AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{
				corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending},
		},
	}
	size := resource.MustParse("2Gi")
	failed := func(message string) corev1.PersistentVolumeClaimCondition {
		return corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimNodeResizeError,
			Status: corev1.ConditionTrue, LastTransitionTime: now, Message: message}
	}
	again := c.DeepCopy()
	again.Status.Conditions = []corev1.PersistentVolumeClaimCondition{failed("before")}
	for name, test := range map[string]struct{ got, want map[string]any }{
		"started": {StartedStatus(c),
			map[string]any{"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimNodeResizeInProgress)}},
		"done": {DoneStatus(c, size),
			map[string]any{"capacity": storage("2Gi"), "allocatedResourceStatuses": storage(nil),
				"conditions": []corev1.PersistentVolumeClaimCondition{{Type: "Other"}}}},
		"failed": {FailedStatus(c, size, status.Error(codes.Internal, "x"), now), map[string]any{
			"conditions": append(slices.Clone(c.Status.Conditions),
				failed("failed to expand pvc with rpc error: code = Internal desc = x"))}},
		"infeasible": {FailedStatus(c, size, status.Error(codes.OutOfRange, "x"), now), map[string]any{
			"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimNodeResizeInfeasible),
			"conditions": append(slices.Clone(c.Status.Conditions),
				failed("failed to expand pvc with rpc error: code = OutOfRange desc = x"))}},
		"failed, and another size is wanted": {FailedStatus(again, size, status.Error(codes.Internal, "x"), now),
			map[string]any{
				"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimNodeResizeInfeasible),
				"conditions": []corev1.PersistentVolumeClaimCondition{
					failed("failed to expand pvc with rpc error: code = Internal desc = x")}}},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestFinalByCode(t *testing.T) {
	for code, want := range map[codes.Code]bool{
		codes.Internal: true, codes.FailedPrecondition: true, codes.OutOfRange: true, codes.DeadlineExceeded: false,
		codes.Unavailable: false, codes.Aborted: false,
	} {
		if got := Final(fmt.Errorf("call: %w", status.Error(code, "x"))); got != want {
			t.Errorf("%v: %t", code, got)
		}
	}
	if Final(errors.New("no Secret")) {
		t.Error("an error before the call of the driver is final")
	}
}
