package fc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

func of(v *corev1.FCVolumeSource) volume.Request {
	return volume.Request{Volume: &corev1.Volume{VolumeSource: corev1.VolumeSource{FC: v}}}
}

func TestSourceNamesItsDisk(t *testing.T) {
	names := []string{"pci-0000:00:01.0-fc-0x500a-lun-1", "fc-0x500a-lun-1", "fc-0x500b-lun-1", "fc-0x500a-lun-10",
		"fc-0x500a-lun-1-part1", "xfc-0x500a-lun-1", "scsi-3600508b4", "scsi-VENDOR_12", "scsi-3600508b4-part1"}
	tests := map[string]struct {
		v      *corev1.FCVolumeSource
		dir    string
		unique corev1.UniqueVolumeName
		links  []string
	}{
		"targets": {&corev1.FCVolumeSource{TargetWWNs: []string{"500a", "500b"}, Lun: new(int32(1))}, "500a-500b-lun-1",
			"kubernetes.io/fc/[500a 500b]:1", names[:3]},
		"disks": {&corev1.FCVolumeSource{WWIDs: []string{"3600508b4", "VENDOR 12"}}, "3600508b4-VENDOR 12",
			"kubernetes.io/fc/[3600508b4 VENDOR 12]", names[6:8]},
	}
	for name, test := range tests {
		s, err := sourceOf(of(test.v))
		if err != nil || s.identity(false).Name != test.dir || s.unique() != test.unique ||
			s.identity(false).adopted() != test.unique {
			t.Errorf("%s: %q, %q, %v", name, s.identity(false).Name, s.unique(), err)
		}
		if diff := cmp.Diff(test.links, s.links(names)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSourceRefusesWhatNamesNoDisk(t *testing.T) {
	for want, v := range map[string]*corev1.FCVolumeSource{
		"set targetWWNs and lun": {TargetWWNs: []string{"500a"}},
		`"../../etc"`:            {WWIDs: []string{"../../etc"}},
		`".."`:                   {WWIDs: []string{".."}},
	} {
		if _, err := sourceOf(of(v)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
