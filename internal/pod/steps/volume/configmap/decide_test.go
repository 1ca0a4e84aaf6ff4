package configmap

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// one is the only object that there is.
type one struct {
	payload.Objects
	name string
	m    *corev1.ConfigMap
}

func (o one) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	if name != o.name {
		return nil, &object.Missing{Key: Key(namespace, name)}
	}
	return o.m, nil
}

func TestFiles(t *testing.T) {
	objects := one{name: "app",
		m: &corev1.ConfigMap{Data: map[string]string{"text": "a"}, BinaryData: map[string][]byte{"binary": {0, 255}}}}
	items := []corev1.KeyToPath{{Key: "binary", Path: "b"}, {Key: "x", Path: "x"}}
	tests := []struct {
		name string
		r    payload.Reference
		want payload.Files
		err  string
	}{
		{"all", payload.Reference{Name: "app"},
			payload.Files{"text": {Data: []byte("a"), Mode: 0o600}, "binary": {Data: []byte{0, 255}, Mode: 0o600}}, ""},
		{"a key that is missing", payload.Reference{Name: "app", Items: items},
			payload.Files{"b": {Data: []byte{0, 255}, Mode: 0o600}}, "configmap references non-existent config key: x"},
		{"an optional key", payload.Reference{Name: "app", Items: items, Optional: new(true)},
			payload.Files{"b": {Data: []byte{0, 255}, Mode: 0o600}}, ""},
		{"missing", payload.Reference{Name: "none"}, nil, "waiting for ConfigMap default/none"},
		{"optional", payload.Reference{Name: "none", Items: items, Optional: new(true)}, payload.Files{}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Files(objects, "default", test.r, 0o600)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}
