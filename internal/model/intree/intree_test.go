package intree

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volume is the part of a CSI volume that a driver needs.
type volume struct {
	Name, Driver, Handle, FSType string
	Secret                       *corev1.SecretReference
	Attributes                   map[string]string
	Modes                        []corev1.PersistentVolumeAccessMode
}

func partOf(v *corev1.PersistentVolume) *volume {
	if v == nil {
		return nil
	}
	s := v.Spec.CSI
	return &volume{v.Name, s.Driver, s.VolumeHandle, s.FSType, s.NodeStageSecretRef, s.VolumeAttributes,
		v.Spec.AccessModes}
}

func TestInlineTranslatesCloudVolumesOnly(t *testing.T) {
	once := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	tests := map[string]struct {
		source corev1.VolumeSource
		want   *volume
	}{
		"EBS": {corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1",
			FSType: "xfs", Partition: 2}}, &volume{Name: "ebs.csi.aws.com-vol-1", Driver: "ebs.csi.aws.com",
			Handle: "vol-1", FSType: "xfs", Attributes: map[string]string{"partition": "2"}, Modes: once}},
		"Azure File, whose Secret is in the pod's namespace": {
			corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s", ShareName: "docs"}},
			&volume{Name: "#s#docs#data#team", Driver: "file.csi.azure.com", Handle: "#s#docs#data#team",
				Secret:     &corev1.SecretReference{Name: "s", Namespace: "team"},
				Attributes: map[string]string{"sharename": "docs"},
				Modes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}},
		"emptyDir": {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, nil},
	}
	for name, test := range tests {
		got, ok, err := Inline(&corev1.Volume{Name: "data", VolumeSource: test.source}, "team")
		if diff := cmp.Diff(test.want, partOf(got)); diff != "" || ok != (test.want != nil) || err != nil {
			t.Errorf("%s: ok %t, %v (-want +got):\n%s", name, ok, err, diff)
		}
	}
}

func TestPersistentKeepsTheOriginal(t *testing.T) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	v.Spec.VsphereVolume = &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[store] a.vmdk"}
	got, ok, err := Persistent(v)
	if !ok || err != nil || got.Name != "pv" || got.Spec.CSI == nil || got.Spec.CSI.Driver != "csi.vsphere.vmware.com" {
		t.Errorf("ok %t, %v: %+v", ok, err, got)
	}
	if v.Spec.VsphereVolume == nil || v.Spec.CSI != nil {
		t.Error("the PersistentVolume was changed")
	}
	v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}
	if got, ok, err := Persistent(v); got != nil || ok || err != nil {
		t.Errorf("an NFS volume: %+v, ok %t, %v", got, ok, err)
	}
}

func TestPersistentReportsAVolumeThatCannotBeTranslated(t *testing.T) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	v.Spec.AzureFile = &corev1.AzureFilePersistentVolumeSource{SecretName: "s", ShareName: "docs"}
	if _, ok, err := Persistent(v); !ok || err == nil {
		t.Errorf("ok %t, %v: want an error, because neither source nor claim has the Secret's namespace", ok, err)
	}
}
