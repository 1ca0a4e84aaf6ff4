package manifesttest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// Decode decodes a manifest with one object.
func Decode(t *testing.T, text, origin string) manifest.Object {
	t.Helper()
	objects, err := manifest.Decode([]byte(text), origin)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	return objects[0]
}

// Pod returns a pod with a name, a UID and an origin.
func Pod(name, uid, origin string) *pod.Pod {
	return &pod.Pod{
		Pod:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid)}},
		Origin: origin}
}
