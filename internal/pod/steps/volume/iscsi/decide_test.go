package iscsi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

func TestSourceOfVolume(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}
	v := &corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{
		TargetPortal: "10.0.0.1", Portals: []string{"10.0.0.2:3261", "10.0.0.1:3260", "fd00::1"},
		IQN: "iqn.2025-01.com.example:disks", Lun: 3, FSType: "xfs", ReadOnly: true, SessionCHAPAuth: true,
		InitiatorName: new("iqn.2025-01.com.example:node"), SecretRef: &corev1.LocalObjectReference{Name: "chap"},
	}}}
	want := source{name: "data", portals: []string{"10.0.0.1:3260", "10.0.0.2:3261", "[fd00::1]:3260"},
		iqn: "iqn.2025-01.com.example:disks", lun: 3, base: "default", initiator: "iqn.2025-01.com.example:node",
		fsType: "xfs", readOnly: true, sessionCHAP: true,
		secret: &corev1.SecretReference{Namespace: "team", Name: "chap"}}
	got, err := sourceOf(volume.Request{Pod: p, Volume: v})
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(source{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if iface := got.iface(); iface != "10.0.0.1:3260:data" {
		t.Errorf("got interface %q", iface)
	}
	if name := unique(volume.Request{Pod: p, Volume: v}); name !=
		"kubernetes.io/iscsi/10.0.0.1:iqn.2025-01.com.example:disks:3" {
		t.Errorf("got %q in the Node's status", name)
	} else if all := identityOf(got, false).adopted(); all[1] != name {
		t.Errorf("a kubelet's disk has other names: %q", all)
	}
}

func TestSourceOfPersistentVolumeIsReadOnlyForReadOnlyMany(t *testing.T) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	pv.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.x",
		SecretRef: &corev1.SecretReference{Name: "chap"}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}
	got, err := sourceOf(volume.Request{Pod: p, Persistent: pv})
	if err != nil || got.name != "pv" || !got.readOnly || got.secret.Namespace != "team" || got.iface() != "default" {
		t.Errorf("got %+v, %v", got, err)
	}
	if pv.Spec.ISCSI.SecretRef.Namespace != "" {
		t.Error("the PersistentVolume was changed")
	}
}

func TestSourceRefusesWhatWouldBeAnotherArgumentOrPath(t *testing.T) {
	for name, change := range map[string]func(*corev1.ISCSIVolumeSource){
		"portal":         func(v *corev1.ISCSIVolumeSource) { v.TargetPortal = "files.example.com" },
		"portal 10.":     func(v *corev1.ISCSIVolumeSource) { v.Portals = []string{"10.0.0.1:0"} },
		"iSCSI target":   func(v *corev1.ISCSIVolumeSource) { v.IQN = "iqn.x/../../y" },
		"must begin":     func(v *corev1.ISCSIVolumeSource) { v.IQN = "--login" },
		"iscsiInterface": func(v *corev1.ISCSIVolumeSource) { v.ISCSIInterface = "-o" },
		"initiatorName":  func(v *corev1.ISCSIVolumeSource) { v.InitiatorName = new("a b") },
	} {
		v := &corev1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.x"}
		change(v)
		_, err := sourceOf(volume.Request{Pod: &corev1.Pod{},
			Volume: &corev1.Volume{VolumeSource: corev1.VolumeSource{ISCSI: v}}})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, " 10.")) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestIdentityIsReadFromTheKubeletsDirectory(t *testing.T) {
	for dir, want := range map[string]identity{
		"/k/iface-default/10.0.0.1:3260-iqn.2025-01.com.example:disks-lun-3": {Iface: "default",
			Portal: "10.0.0.1:3260", IQN: "iqn.2025-01.com.example:disks", LUN: "3"},
		"/k/iface-10.0.0.1:3260:pv/[fd00::1]:3260-eui.02-lun-a-lun-0": {Iface: "10.0.0.1:3260:pv",
			Portal: "[fd00::1]:3260", IQN: "eui.02-lun-a", LUN: "0"},
	} {
		got, ok := identityOfDir(dir)
		if got != want || !ok || !strings.HasSuffix(dir, "/"+got.dir()) {
			t.Errorf("%s: got %+v, %v", dir, got, ok)
		}
	}
	for _, dir := range []string{"/k/volumeDevices/a-lun-0", "/k/iface-default/10.0.0.1:3260", "/k/iface-default/a-b"} {
		if id, ok := identityOfDir(dir); ok {
			t.Errorf("%s: got %+v", dir, id)
		}
	}
}

func TestBegin(t *testing.T) {
	portals, face := []string{"a", "b"}, record{Iface: "default"}
	begun := func(iface string, p ...string) record { return record{Iface: iface, Begun: p} }
	tests := map[string]struct {
		sessions []string
		own      record
		others   []record
		want     []string
	}{
		"no session":                               {nil, face, nil, portals},
		"a session of the administrator":           {[]string{"a"}, face, nil, []string{"b"}},
		"a session of its own, after a restart":    {portals, begun("default", "a"), nil, []string{"a"}},
		"a session of another volume":              {portals, face, []record{begun("default", "b")}, []string{"b"}},
		"a session of another volume's initiator":  {portals, face, []record{begun("other", "b")}, nil},
		"its own record, and the session is gone":  {nil, begun("default", "a"), nil, portals},
		"all sessions are of other volumes' users": {portals, face, []record{begun("default", "a", "b")}, portals},
	}
	for name, test := range tests {
		test.own.Iface = "default"
		if diff := cmp.Diff(test.want, begin(portals, test.sessions, test.own, test.others)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestEnd(t *testing.T) {
	own := record{Iface: "default", Portals: []string{"a", "b"}, Begun: []string{"a", "b"}, Lun: "1"}
	own2 := own
	own2.InitiatorName = "iqn.me"
	other := func(lun string, portals ...string) record {
		return record{Iface: "default", Portals: portals, Begun: portals, Lun: lun}
	}
	user := record{Iface: "default", Portals: own.Portals, Lun: "2"}
	heir := func(begun ...string) record {
		r := user
		r.Begun = begun
		return r
	}
	tests := map[string]struct {
		own    record
		others []record
		want   work
	}{
		"the last volume":             {own, nil, work{logout: own.Begun, removeDisk: true}},
		"another disk of one session": {own, []record{other("2", "b")}, work{logout: own.Begun[:1], removeDisk: true}},
		"the same disk as a device":   {own, []record{other("1", "a", "b")}, work{}},
		"another interface": {own, []record{{Iface: "x", Portals: own.Portals, Lun: "2"}},
			work{logout: own.Begun, removeDisk: true}},
		"sessions of the administrator": {record{Iface: "default", Portals: own.Portals}, nil, work{}},
		"an interface made for it":      {own2, nil, work{logout: own.Begun, removeDisk: true, removeFace: true}},
		"an interface that others share": {own2, []record{other("2", "a")},
			work{logout: own.Begun[1:], removeDisk: true}},
		"another volume becomes responsible": {own, []record{user}, work{removeDisk: true,
			heirs: []record{heir("a", "b")}}},
	}
	for name, test := range tests {
		got := end(test.own, test.others)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(work{}, record{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSettings(t *testing.T) {
	const shown = "# BEGIN RECORD 2.1.8\niface.iscsi_ifacename = default\niface.net_ifacename = <empty>\n" +
		"iface.transport_name = tcp\niface.initiatorname = iqn.old\niface.vlan_id = 0\n# END RECORD\n"
	want := [][2]string{{"iface.transport_name", "tcp"}, {"iface.vlan_id", "0"}}
	if diff := cmp.Diff(want, settings(shown)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
