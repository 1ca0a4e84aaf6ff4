package csi

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/volume"
)

func TestListed(t *testing.T) {
	a, b := storagev1.CSINodeDriver{Name: "a", NodeID: "1"}, storagev1.CSINodeDriver{Name: "b", NodeID: "1"}
	full := storagev1.CSINodeDriver{Name: "b", NodeID: "2", TopologyKeys: []string{"x", "z"}, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(5))}}
	tests := map[string]struct {
		info *info
		want []storagev1.CSINodeDriver
	}{
		"another":   {&info{nodeID: "2", limit: 5, topology: map[string]string{"z": "1", "x": "2"}}, []storagev1.CSINodeDriver{a, full}},
		"no limit":  {&info{nodeID: "1"}, []storagev1.CSINodeDriver{a, b}},
		"it leaves": {nil, []storagev1.CSINodeDriver{a}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, listed([]storagev1.CSINodeDriver{a, b}, "b", test.info)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestAnnotated(t *testing.T) {
	for _, test := range []struct {
		text string
		info *info
		want string
	}{
		{"", &info{nodeID: "1"}, `{"b":"1"}`},
		{`{"a":"0"}`, &info{nodeID: "1"}, `{"a":"0","b":"1"}`},
		{`{"a":"0","b":"1"}`, nil, `{"a":"0"}`},
		{`{"b":"1"}`, nil, ""},
		{`null`, &info{nodeID: "1"}, `{"b":"1"}`},
		{`broken`, &info{nodeID: "1"}, `{"b":"1"}`},
	} {
		if got := annotated(test.text, "b", test.info); got != test.want {
			t.Errorf("%q: %q, want %q", test.text, got, test.want)
		}
	}
}

func TestGroups(t *testing.T) {
	driver := func(p storagev1.FSGroupPolicy) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{FSGroupPolicy: &p}}
	}
	persistent := func(fsType string, modes ...corev1.PersistentVolumeAccessMode) volume.Request {
		s := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{FSType: fsType}}
		return volume.Request{Persistent: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: s, AccessModes: modes}}}
	}
	tests := map[string]struct {
		driver  *storagev1.CSIDriver
		request volume.Request
		want    bool
	}{
		"nothing known, ext4":      {nil, persistent("ext4", corev1.ReadWriteOnce), true},
		"no fsType":                {nil, persistent("", corev1.ReadWriteOnce), false},
		"shared":                   {driver(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), persistent("ext4", corev1.ReadWriteMany), false},
		"one pod's":                {nil, persistent("ext4", corev1.ReadWriteOncePod), true},
		"always":                   {driver(storagev1.FileFSGroupPolicy), persistent("", corev1.ReadWriteMany), true},
		"never":                    {driver(storagev1.NoneFSGroupPolicy), persistent("ext4", corev1.ReadWriteOnce), false},
		"inline":                   {nil, volume.Request{Volume: &corev1.Volume{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{FSType: new("ext4")}}}}, true},
		"inline without an fsType": {nil, volume.Request{Volume: &corev1.Volume{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}}}, false},
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
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, MountOptions: []string{"noatime"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{FSType: "xfs"}},
		}},
	}
	want := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: []string{"noatime", `context="a:b:c:s0"`}, VolumeMountGroup: "7"}},
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

func TestGrownStatus(t *testing.T) {
	v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}}}
	c := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		Conditions: []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending}, {Type: "Other"}},
	}}
	if !grows(c, v) {
		t.Error("a larger volume does not grow")
	}
	want := map[string]any{"capacity": map[string]any{"storage": "2Gi"}, "conditions": []corev1.PersistentVolumeClaimCondition{{Type: "Other"}}}
	if diff := cmp.Diff(want, grownStatus(c, v)); diff != "" {
		t.Error(diff)
	}
}

func TestChecks(t *testing.T) {
	deleted := metav1.Now()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"version 0":        {checkVersions([]string{"0.3.0"}), `it speaks versions ["0.3.0"] of CSI, and this agent version 1`},
		"a way out":        {identity{Driver: "../x", Handle: "h"}.check(), `"../x" is no name of a CSI driver or volume`},
		"another topology": {clash(map[string]string{"zone": "a"}, map[string]string{"zone": "b"}), `detected topology value collision: driver reported "zone":"b" but existing label is "zone":"a"`},
		"detaching":        {second(attached(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", DeletionTimestamp: &deleted}})), "volume attachment va is being deleted"},
		"cannot be attached": {second(attached(&storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no disk"}}})),
			"attach the volume: no disk"},
	} {
		if test.err == nil || test.err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", name, test.err, test.want)
		}
	}
}

func second(_ bool, err error) error { return err }
