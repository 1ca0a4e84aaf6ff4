package csi

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

func TestGroups(t *testing.T) {
	driver := func(p storagev1.FSGroupPolicy) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{FSGroupPolicy: &p}}
	}
	persistent := func(fsType string, modes ...corev1.PersistentVolumeAccessMode) volume.Request {
		s := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{FSType: fsType}}
		return volume.Request{
			Persistent: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: s,
				AccessModes: modes}}}
	}
	tests := map[string]struct {
		driver  *storagev1.CSIDriver
		request volume.Request
		want    bool
	}{
		"nothing known, ext4": {nil, persistent("ext4", corev1.ReadWriteOnce), true},
		"no fsType":           {nil, persistent("", corev1.ReadWriteOnce), false},
		"shared": {driver(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
			persistent("ext4", corev1.ReadWriteMany), false},
		"one pod's": {nil, persistent("ext4", corev1.ReadWriteOncePod), true},
		"always":    {driver(storagev1.FileFSGroupPolicy), persistent("", corev1.ReadWriteMany), true},
		"never": {driver(storagev1.NoneFSGroupPolicy), persistent("ext4", corev1.ReadWriteOnce),
			false},
		"inline": {nil,
			volume.Request{
				Volume: &corev1.Volume{
					VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{FSType: new("ext4")}}}}, true},
		"inline without an fsType": {nil,
			volume.Request{Volume: &corev1.Volume{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}}},
			false},
	}
	for name, test := range tests {
		if got := groups(test.driver, test.request); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestCapability(t *testing.T) {
	r := volume.Request{
		Pod: &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(7))}}},
		Persistent: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			AccessModes:  []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			MountOptions: []string{"noatime"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{FSType: "xfs"}},
		}},
	}
	want := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs",
			MountFlags: []string{"noatime", `context="a:b:c:s0"`}, VolumeMountGroup: "7"}},
	}
	if diff := cmp.Diff(want, capability(r, true, true, "a:b:c:s0"), protocmp.Transform()); diff != "" {
		t.Errorf("a file system:\n%s", diff)
	}
	r.Block = true
	want = &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
	if diff := cmp.Diff(want, capability(r, false, true, "a:b:c:s0"), protocmp.Transform()); diff != "" {
		t.Errorf("a device:\n%s", diff)
	}
}

func TestExpands(t *testing.T) {
	const gi = 1 << 30
	size := func(n int64) resource.Quantity { return *resource.NewQuantity(n*gi, resource.BinarySI) }
	list := func(n int64) corev1.ResourceList { return corev1.ResourceList{corev1.ResourceStorage: size(n)} }
	state := func(s corev1.ClaimResourceStatus) map[corev1.ResourceName]corev1.ClaimResourceStatus {
		return map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: s}
	}
	many := corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}
	tests := map[string]struct {
		claim    corev1.PersistentVolumeClaim
		has, had int64 // the PersistentVolume, and here
		want     expansion
	}{
		"nothing new": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1)}}, 1, 1,
			expansion{}},
		"an older control plane": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1)}}, 2, 1,
			expansion{size: size(2), tell: true}},
		"the node is to expand it": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimNodeResizePending)}}, 2, 1,
			expansion{size: size(2), tell: true, asked: true}},
		"an agent was at it": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimNodeResizeInProgress)}}, 2, 1,
			expansion{size: size(2), tell: true, asked: true}},
		"the controller is at it": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimControllerResizeInProgress)}}, 2, 1,
			expansion{}},
		"it cannot be": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimNodeResizeInfeasible)}}, 2, 1,
			expansion{}},
		"less was allocated": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(1),
				AllocatedResources:        list(2),
				AllocatedResourceStatuses: state(corev1.PersistentVolumeClaimNodeResizePending)}}, 3, 1,
			expansion{size: size(2), tell: true, asked: true}},
		"done elsewhere": {
			corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Capacity: list(2),
				AllocatedResources: list(2)}}, 2, 1, expansion{}},
		"done on another node": {corev1.PersistentVolumeClaim{Spec: many,
			Status: corev1.PersistentVolumeClaimStatus{Capacity: list(2), AllocatedResources: list(2)}}, 2, 1,
			expansion{size: size(2)}},
		"nothing to do for nodes": {
			corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{expansionNotRequired: "true"}}, Spec: many,
				Status: corev1.PersistentVolumeClaimStatus{Capacity: list(2), AllocatedResources: list(2)}}, 2, 1,
			expansion{}},
	}
	for name, test := range tests {
		test.claim.Status.Phase = corev1.ClaimBound
		v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: list(test.has)}}
		got := expands(&test.claim, v, size(test.had))
		if got.size.Cmp(test.want.size) != 0 || got.tell != test.want.tell || got.asked != test.want.asked {
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
		"begun": {begunStatus(c),
			map[string]any{"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimNodeResizeInProgress)}},
		"done": {grownStatus(c, size),
			map[string]any{"capacity": storage("2Gi"), "allocatedResourceStatuses": storage(nil),
				"conditions": []corev1.PersistentVolumeClaimCondition{{Type: "Other"}}}},
		"failed": {failedStatus(c, size, status.Error(codes.Internal, "x"), now), map[string]any{
			"conditions": append(slices.Clone(c.Status.Conditions),
				failed("failed to expand pvc with rpc error: code = Internal desc = x"))}},
		"infeasible": {failedStatus(c, size, status.Error(codes.OutOfRange, "x"), now), map[string]any{
			"allocatedResourceStatuses": storage(corev1.PersistentVolumeClaimNodeResizeInfeasible),
			"conditions": append(slices.Clone(c.Status.Conditions),
				failed("failed to expand pvc with rpc error: code = OutOfRange desc = x"))}},
		"failed, and another size is wanted": {failedStatus(again, size, status.Error(codes.Internal, "x"), now),
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

func TestFinal(t *testing.T) {
	for code, want := range map[codes.Code]bool{
		codes.Internal: true, codes.FailedPrecondition: true, codes.OutOfRange: true, codes.DeadlineExceeded: false,
		codes.Unavailable: false, codes.Aborted: false,
	} {
		if got := final(fmt.Errorf("call: %w", status.Error(code, "x"))); got != want {
			t.Errorf("%v: %t", code, got)
		}
	}
	if final(errors.New("no Secret")) {
		t.Error("what never came to the driver is final")
	}
}

func TestSucceeds(t *testing.T) {
	one := &driver{endpoint: "/one.sock", version: version.MustParseGeneric("1.1.0")}
	const taken = "another driver with the same name is already registered, at /one.sock with version 1.1.0: one " +
		"that takes its place needs a higher one than "
	for name, test := range map[string]struct {
		before    *driver
		versions  []string
		want, err string
	}{
		"the first":   {nil, []string{"1.0.0"}, "1.0.0", ""},
		"its highest": {nil, []string{"0.3.0", "1.0.0", "1.2.0", "2.0.0"}, "1.2.0", ""},
		"no version 1": {nil, []string{"0.3.0", "2.0.0"}, "",
			`it speaks versions ["0.3.0" "2.0.0"] of CSI, and this agent version 1`},
		"none":             {nil, nil, "", `it speaks versions [] of CSI, and this agent version 1`},
		"a higher version": {one, []string{"1.0.0", "1.2.0"}, "1.2.0", ""},
		"a lower version":  {one, []string{"1.0.0"}, "", taken + "1.0.0"},
		"the same version": {one, []string{"1.1.0"}, "", taken + "1.1.0"},
	} {
		got, err := succeeds(test.before, test.versions)
		if text := fmt.Sprint(err); err == nil && got.String() != test.want || err != nil && text != test.err {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestLabelOf(t *testing.T) {
	a, b := &corev1.SELinuxOptions{Level: "s0:c1,c2"}, &corev1.SELinuxOptions{Level: "s0:c3,c4"}
	container := func(o *corev1.SELinuxOptions) corev1.Container {
		c := corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "data"}}}
		if o != nil {
			c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: o}
		}
		return c
	}
	other := container(b)
	other.VolumeMounts[0].Name = "other"
	policy := func(p corev1.PodSELinuxChangePolicy) *corev1.PodSecurityContext {
		return &corev1.PodSecurityContext{SELinuxOptions: a, SELinuxChangePolicy: &p}
	}
	tests := map[string]struct {
		mount   bool // the driver's seLinuxMount
		mode    corev1.PersistentVolumeAccessMode
		pod     corev1.PodSpec
		inline  bool
		block   bool
		want    *corev1.SELinuxOptions
		wantErr bool
	}{
		"the pod's": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{SecurityContext: policy(corev1.SELinuxChangePolicyMountOption),
				Containers: []corev1.Container{container(nil)}}, want: a},
		"its container's": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{SecurityContext: policy(corev1.SELinuxChangePolicyMountOption),
				Containers: []corev1.Container{container(b)}}, want: b},
		"file by file": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{SecurityContext: policy(corev1.SELinuxChangePolicyRecursive),
				Containers: []corev1.Container{container(nil)}}},
		"no label": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(nil)}}},
		"a driver without it": {mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a)}}},
		"other pods may have it": {mount: true, mode: corev1.ReadWriteOnce,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a)}}},
		"inline": {mount: true, inline: true,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a)}}},
		"a device": {mount: true, mode: corev1.ReadWriteOncePod, block: true,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a)}}},
		"two labels": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a), container(b)}}, wantErr: true},
		"one with, one without": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(nil), container(b)}}, want: b},
		"another that has no part": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a), other}}, want: a},
		"an init container's matters": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{InitContainers: []corev1.Container{container(b)},
				Containers: []corev1.Container{container(a)}}, wantErr: true},
	}
	for name, test := range tests {
		r := volume.Request{Pod: &corev1.Pod{Spec: test.pod}, Volume: &corev1.Volume{Name: "data"}, Block: test.block}
		if !test.inline {
			r.Persistent = &corev1.PersistentVolume{
				Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{test.mode}}}
		}
		got, err := labelOf(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{SELinuxMount: &test.mount}}, r)
		if diff := cmp.Diff(test.want, got); diff != "" || (err != nil) != test.wantErr {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func TestChecks(t *testing.T) {
	deleted := metav1.Now()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a way out": {identity{Driver: "../x", Handle: "h"}.check(), `"../x" is no name of a CSI driver or volume`},
		"detaching": {
			second(
				attached(
					&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va",
						DeletionTimestamp: &deleted}})), "volume attachment va is being deleted"},
		"cannot be attached": {
			second(
				attached(
					&storagev1.VolumeAttachment{
						Status: storagev1.VolumeAttachmentStatus{
							AttachError: &storagev1.VolumeError{Message: "no disk"}}})),
			"attach the volume: no disk"},
	} {
		if test.err == nil || test.err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", name, test.err, test.want)
		}
	}
}

func TestDrivers(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "b.example.com"}}},
		{Name: "b"},
	}}}
	of := func(driver string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}}}}
	}
	got := Drivers(p, []*corev1.PersistentVolume{of("b.example.com"), {}, of("a.example.com")})
	if diff := cmp.Diff([]string{"a.example.com", "b.example.com"}, got); diff != "" {
		t.Error(diff)
	}
}

func second(_ bool, err error) error { return err }
