package secret

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
	s    *corev1.Secret
}

func (o one) Secret(namespace, name string) (*corev1.Secret, error) {
	if name != o.name {
		return nil, &object.Missing{Key: Key(namespace, name)}
	}
	return o.s, nil
}

func TestFiles(t *testing.T) {
	objects := one{name: "app",
		s: &corev1.Secret{Data: map[string][]byte{"user": []byte("a"), "password": []byte("b")}}}
	items := []corev1.KeyToPath{{Key: "user", Path: "u"}, {Key: "x", Path: "x"}}
	tests := []struct {
		name string
		r    payload.Reference
		want payload.Files
		err  string
	}{
		{"all", payload.Reference{Name: "app"},
			payload.Files{"user": {Data: []byte("a"), Mode: 0o400}, "password": {Data: []byte("b"), Mode: 0o400}}, ""},
		{"a key that is missing", payload.Reference{Name: "app", Items: items},
			payload.Files{"u": {Data: []byte("a"), Mode: 0o400}}, "references non-existent secret key: x"},
		{"missing", payload.Reference{Name: "none"}, nil, "waiting for Secret default/none"},
		{"optional", payload.Reference{Name: "none", Items: items, Optional: new(true)}, payload.Files{}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Files(objects, "default", test.r, 0o400)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}
