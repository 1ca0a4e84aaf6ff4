package projected

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/keyvalue"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

func reference(name string) corev1.LocalObjectReference {
	return corev1.LocalObjectReference{Name: name}
}

func volumeOf(sources ...corev1.VolumeProjection) *corev1.Volume {
	return &corev1.Volume{Name: "all",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(0o444)),
			Sources: sources}}}
}

var (
	fromConfigMap = corev1.VolumeProjection{
		ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: reference("app")}}
	fromSecret = corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: reference("app"),
		Items: []corev1.KeyToPath{{Key: "password", Path: "secret/password", Mode: new(int32(0o400))}}}}
	fromPod = corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "name",
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}
	optional = corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: reference("none"),
		Optional: new(true)}}
	token = corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
)

func TestContentMergesSources(t *testing.T) {
	table := store.New[object.Key, runtime.Object]()
	objects := object.New(table)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	v := volumeOf(fromConfigMap, fromSecret, fromPod, optional)

	want := []object.Key{keyvalue.ConfigMap.Key("default", "app"), keyvalue.Secret.Key("default", "app"),
		keyvalue.Secret.Key("default", "none")}
	if d := cmp.Diff(want, (Source{}).Uses(p, v)); d != "" {
		t.Errorf("uses (-want +got):\n%s", d)
	}
	_, err := Source{}.Content(t.Context(), objects, p, v)
	if keys, only := object.Waits(err); !only || !slices.Equal(keys, want[:2]) ||
		err.Error() != "waiting for ConfigMap default/app, waiting for Secret default/app" {
		t.Errorf("%v: waits for %v, %v", err, keys, only)
	}
	table.Put(want[0], &corev1.ConfigMap{Data: map[string]string{"a": "1", "name": "taken by a later source"}})
	table.Put(want[1], &corev1.Secret{Data: map[string][]byte{"password": []byte("s")}})
	got, err := Source{}.Content(t.Context(), objects, p, v)
	files := payload.Content{Files: payload.Files{
		"a": {Data: []byte("1"), Mode: 0o444}, "secret/password": {Data: []byte("s"), Mode: 0o400},
		"name": {Data: []byte("web"), Mode: 0o444},
	}}
	if d := cmp.Diff(files, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestContentRefuses(t *testing.T) {
	objects := object.New(store.New[object.Key, runtime.Object]())
	for want, source := range map[string]corev1.VolumeProjection{
		"source 1: only a control plane can issue the source, and this node has none": token,
		"source 1: this agent does not serve a source of this kind":                   {},
		`source 1: file "x": unsupported fieldPath: spec.x`: {DownwardAPI: &corev1.DownwardAPIProjection{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "x",
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.x"}}}}},
	} {
		if _, err := (Source{}).Content(t.Context(), objects, &corev1.Pod{}, volumeOf(fromPod, source)); err == nil ||
			err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

type issuer time.Time

func (i issuer) Issue(_ context.Context, _ *corev1.Pod, v *corev1.Volume, source int) (map[string][]byte, time.Time,
	error) {
	if v.Projected.Sources[source].ServiceAccountToken == nil {
		return nil, time.Time{}, errors.New("no such source")
	}
	return map[string][]byte{"token": []byte("t")}, time.Time(i), nil
}

// KEP-2451 says who may read an issued file.
func TestIssuedFilesAreForThePodsUser(t *testing.T) {
	until := time.Unix(1000, 0)
	s := Source{Issuer: issuer(until)}
	as := func(user *int64) corev1.Container {
		return corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsUser: user}}
	}
	spec := func(user, group *int64, containers ...corev1.Container) corev1.PodSpec {
		return corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{RunAsUser: user, FSGroup: group},
			Containers: containers}
	}
	one, two := new(int64(1)), new(int64(2))
	tests := map[string]struct {
		spec corev1.PodSpec
		want payload.File
	}{
		"nobody says":                {corev1.PodSpec{Containers: []corev1.Container{{}}}, payload.File{Mode: 0o444}},
		"the pod's user":             {spec(one, nil, as(nil), as(nil)), payload.File{Mode: 0o600, User: one}},
		"the containers' user":       {spec(two, nil, as(one), as(one)), payload.File{Mode: 0o600, User: one}},
		"several users":              {spec(one, nil, as(nil), as(two)), payload.File{Mode: 0o444}},
		"one container does not say": {spec(nil, nil, as(one), as(nil)), payload.File{Mode: 0o444}},
		"a group":                    {spec(nil, two, as(nil)), payload.File{Mode: 0o600}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := s.Content(t.Context(), nil, &corev1.Pod{Spec: test.spec}, volumeOf(token))
			test.want.Data = []byte("t")
			want := payload.Content{Files: payload.Files{"token": test.want}, Until: until}
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
		})
	}
}
