package csi

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

func TestAppliesGroup(t *testing.T) {
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
		"no CSIDriver, ext4": {nil, persistent("ext4", corev1.ReadWriteOnce), true},
		"no fsType":          {nil, persistent("", corev1.ReadWriteOnce), false},
		"several nodes": {driver(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
			persistent("ext4", corev1.ReadWriteMany), false},
		"one pod":     {nil, persistent("ext4", corev1.ReadWriteOncePod), true},
		"policy File": {driver(storagev1.FileFSGroupPolicy), persistent("", corev1.ReadWriteMany), true},
		"policy None": {driver(storagev1.NoneFSGroupPolicy), persistent("ext4", corev1.ReadWriteOnce),
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
		if got := appliesGroup(test.driver, test.request); got != test.want {
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
		t.Errorf("file system:\n%s", diff)
	}
	r.Block = true
	want = &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
	if diff := cmp.Diff(want, capability(r, false, true, "a:b:c:s0"), protocmp.Transform()); diff != "" {
		t.Errorf("block device:\n%s", diff)
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
		"options of the pod": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{SecurityContext: policy(corev1.SELinuxChangePolicyMountOption),
				Containers: []corev1.Container{container(nil)}}, want: a},
		"options of the container": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{SecurityContext: policy(corev1.SELinuxChangePolicyMountOption),
				Containers: []corev1.Container{container(b)}}, want: b},
		"policy Recursive": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{SecurityContext: policy(corev1.SELinuxChangePolicyRecursive),
				Containers: []corev1.Container{container(nil)}}},
		"no label": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(nil)}}},
		"driver without seLinuxMount": {mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a)}}},
		"several pods may use the volume": {mount: true, mode: corev1.ReadWriteOnce,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a)}}},
		"inline": {mount: true, inline: true,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a)}}},
		"block device": {mount: true, mode: corev1.ReadWriteOncePod, block: true,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a)}}},
		"containers with two labels": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a), container(b)}}, wantErr: true},
		"one container with options, one without": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(nil), container(b)}}, want: b},
		"other label on a container without the volume": {mount: true, mode: corev1.ReadWriteOncePod,
			pod: corev1.PodSpec{Containers: []corev1.Container{container(a), other}}, want: a},
		"other label on an init container": {mount: true, mode: corev1.ReadWriteOncePod,
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

func TestCheckAndAttachedErrors(t *testing.T) {
	deleted := metav1.Now()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"name with a path": {identity{Driver: "../x", Handle: "h"}.check(),
			`"../x" is no name of a CSI driver or volume`},
		"attachment being deleted": {
			second(
				attached(
					&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va",
						DeletionTimestamp: &deleted}})), "volume attachment va is being deleted"},
		"attach error": {
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
		{Name: "c", VolumeSource: corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{VolumeID: "1"}}},
	}}}
	cloud := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}}}}
	of := func(driver string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}}}}
	}
	got := Drivers(p, []*corev1.PersistentVolume{of("b.example.com"), {}, of("a.example.com"), cloud})
	if diff := cmp.Diff([]string{"a.example.com", "b.example.com", "cinder.csi.openstack.org", "pd.csi.storage.gke.io"},
		got); diff != "" {
		t.Error(diff)
	}
}

func TestTargetNameHasNoSlash(t *testing.T) {
	r := volume.Request{Persistent: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "csi.vsphere.vmware.com-[store] kubevols/disk.vmdk"}}}
	if got, want := targetName(r), "csi.vsphere.vmware.com-[store] kubevols~disk.vmdk"; got != want {
		t.Errorf("targetName is %q, want %q", got, want)
	}
}

func second(_ bool, err error) error { return err }
