package identity

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
	"github.com/berth-run/berth/internal/model/pod"
)

// FuzzIdentities reads the identities of manifests and looks one up. A pod always gets a UID.
func FuzzIdentities(f *testing.F) {
	const place = "web.yaml default/web"
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "identities.json", Version: 1,
		Seeds: []string{
			`{"web.yaml default/web":{"uid":"u1","content":"c1","shape":"s1","amended":{"base":"b",` +
				`"resources":{"app":{"limits":{"cpu":"2"}}},"ephemeral":[{"name":"debug","image":"i"}]},` +
				`"former":["u0"]}}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			s := New(filepath.Join(dir, "identities.json"))
			err := s.Load()
			loaded := checkpointtest.Show(s.known)
			p := &pod.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "c1",
				Annotations: map[string]string{}}}}
			p.Spec.Containers = []corev1.Container{{Name: "app", Image: "i"}}
			if got := s.Identify("web.yaml", p); got.UID == "" {
				t.Error("the pod of a manifest has no UID")
			}
			if _, known := s.known[Place("web.yaml", types.NamespacedName{Namespace: "default", Name: "web"})]; !known {
				t.Errorf("%s is not remembered", place)
			}
			return loaded, checkpointtest.Text(err)
		},
	})
}
