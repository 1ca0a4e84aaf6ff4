package keyvalue

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// objects has one ConfigMap and one Secret, both with the name app.
type objects struct {
	configMap *corev1.ConfigMap
	secret    *corev1.Secret
}

func (o objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	if name != "app" {
		return nil, &object.Missing{Key: ConfigMap.Key(namespace, name)}
	}
	return o.configMap, nil
}

func (o objects) Secret(namespace, name string) (*corev1.Secret, error) {
	if name != "app" {
		return nil, &object.Missing{Key: Secret.Key(namespace, name)}
	}
	return o.secret, nil
}

func TestFiles(t *testing.T) {
	both := objects{
		&corev1.ConfigMap{Data: map[string]string{"text": "a"}, BinaryData: map[string][]byte{"binary": {0, 255}}},
		&corev1.Secret{Data: map[string][]byte{"user": []byte("a"), "password": []byte("b")}},
	}
	keys := []corev1.KeyToPath{{Key: "binary", Path: "b"}, {Key: "x", Path: "x"}}
	secretKeys := []corev1.KeyToPath{{Key: "user", Path: "u"}, {Key: "x", Path: "x"}}
	tests := []struct {
		name   string
		source Source
		r      payload.Reference
		want   payload.Files
		err    string
	}{
		{"all keys", ConfigMap, payload.Reference{Name: "app"},
			payload.Files{"text": {Data: []byte("a"), Mode: 0o600}, "binary": {Data: []byte{0, 255}, Mode: 0o600}}, ""},
		{"missing key", ConfigMap, payload.Reference{Name: "app", Items: keys},
			payload.Files{"b": {Data: []byte{0, 255}, Mode: 0o600}}, "configmap references non-existent config key: x"},
		{"optional key", ConfigMap, payload.Reference{Name: "app", Items: keys, Optional: new(true)},
			payload.Files{"b": {Data: []byte{0, 255}, Mode: 0o600}}, ""},
		{"missing", ConfigMap, payload.Reference{Name: "none"}, nil, "waiting for ConfigMap default/none"},
		{"optional", ConfigMap, payload.Reference{Name: "none", Items: keys, Optional: new(true)}, payload.Files{}, ""},
		{"all keys", Secret, payload.Reference{Name: "app"},
			payload.Files{"user": {Data: []byte("a"), Mode: 0o600}, "password": {Data: []byte("b"), Mode: 0o600}}, ""},
		{"missing key", Secret, payload.Reference{Name: "app", Items: secretKeys},
			payload.Files{"u": {Data: []byte("a"), Mode: 0o600}}, "references non-existent secret key: x"},
		{"missing", Secret, payload.Reference{Name: "none"}, nil, "waiting for Secret default/none"},
		{"optional", Secret, payload.Reference{Name: "none", Items: secretKeys, Optional: new(true)},
			payload.Files{}, ""},
	}
	for _, test := range tests {
		t.Run(string(test.source)+" "+test.name, func(t *testing.T) {
			got, err := test.source.Files(both, "default", test.r, 0o600)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}
