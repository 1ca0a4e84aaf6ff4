package flexvolume

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

func TestMountOptions(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team", UID: "u"},
		Spec: corev1.PodSpec{ServiceAccountName: "robot",
			SecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(7))}}}
	s := source{driver: "example.com/files", name: "data", fsType: "xfs", readOnly: true,
		options: map[string]string{"share": "a", keyPod: "mine"}}
	want := map[string]string{
		"kubernetes.io/fsType": "xfs", "kubernetes.io/readwrite": "ro", "kubernetes.io/pvOrVolumeName": "data",
		"kubernetes.io/pod.name": "mine", "kubernetes.io/pod.namespace": "team", "kubernetes.io/pod.uid": "u",
		"kubernetes.io/serviceAccount.name": "robot", "kubernetes.io/mounterArgs.FsGroup": "7",
		"kubernetes.io/secret/password": "aGlkZGVu", "share": "a",
	}
	if diff := cmp.Diff(want, mountOptions(s, p, map[string][]byte{"password": []byte("hidden")})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSourceOfPersistentVolumeFindsTheSecretsNamespace(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}
	for namespace, want := range map[string]string{"": "team", "store": "store"} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.FlexVolume = &corev1.FlexPersistentVolumeSource{Driver: "d", ReadOnly: true,
			SecretRef: &corev1.SecretReference{Namespace: namespace, Name: "s"}}
		got := sourceOf(volume.Request{Pod: p, Persistent: pv})
		if got.secret.Namespace != want || got.name != "pv" || got.readOnly {
			t.Errorf("%q: %+v, Secret %+v", namespace, got, got.secret)
		}
		if pv.Spec.FlexVolume.SecretRef.Namespace != namespace {
			t.Errorf("%q: the PersistentVolume was changed", namespace)
		}
	}
}

func TestCheckDriver(t *testing.T) {
	for name, ok := range map[string]bool{
		"example.com/files": true, "files": true, "": false, "../files": false, "a/b/c": false, "a~b/c": false,
		".hidden/files": false, "example.com/": false,
	} {
		if err := checkDriver(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestParse(t *testing.T) {
	all := &capabilities{Attach: true, Relabel: true, FSGroup: true}
	for name, test := range map[string]struct {
		output string
		want   answer
		err    string
	}{
		"capabilities have defaults": {`{"status":"Success","capabilities":{"attach":false}}`,
			answer{Status: "Success", Capabilities: &capabilities{Relabel: true, FSGroup: true}}, ""},
		"device":        {`{"status":"Success","device":"/dev/x"}`, answer{"Success", "", "/dev/x", all}, ""},
		"failure":       {`{"status":"Failure","message":"no disk"}`, answer{"Failure", "no disk", "", all}, "no disk"},
		"not supported": {`{"status":"Not supported"}`, answer{"Not supported", "", "", all}, errUnsupported.Error()},
		"no JSON":       {"mount: failed", answer{Capabilities: all}, "is not JSON"},
		"nothing":       {"", answer{Capabilities: all}, "is not JSON"},
	} {
		got, err := parse([]byte(test.output))
		if diff := cmp.Diff(test.want, got); diff != "" || (err == nil) != (test.err == "") {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %q, want %q", name, err, test.err)
		}
		if unsupported := test.err == errUnsupported.Error(); errors.Is(err, errUnsupported) != unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOwnRefusesOtherOptionsWhileTheDeviceIsMounted(t *testing.T) {
	file := t.TempDir() + "/options"
	for _, step := range []struct {
		options string
		mounted bool
		refused bool
	}{{"a", false, false}, {"a", true, false}, {"b", true, true}, {"b", false, false}} {
		if err := own(file, step.options, step.mounted); (err != nil) != step.refused {
			t.Errorf("%+v: %v", step, err)
		}
	}
}
