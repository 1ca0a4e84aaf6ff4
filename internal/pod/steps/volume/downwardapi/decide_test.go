package downwardapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

func field(path, name string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: name}}
}

func resourceOf(path, container, name string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path,
		ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: name}}
}

func TestFiles(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web", "tier": "1"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"memory": resource.MustParse("64Mi")},
		}}}},
	}
	allocatable := corev1.ResourceList{"cpu": resource.MustParse("3500m")}
	owned := field("name", "metadata.name")
	owned.Mode = new(int32(0o400))
	got, err := Files(p, []corev1.DownwardAPIVolumeFile{
		owned, field("meta/labels", "metadata.labels"), resourceOf("memory", "app", "limits.memory"),
		resourceOf("cpu", "app", "limits.cpu"),
	}, 0o640, allocatable)
	want := payload.Files{
		"name":        {Data: []byte("web"), Mode: 0o400},
		"meta/labels": {Data: []byte("app=\"web\"\ntier=\"1\""), Mode: 0o640},
		"memory":      {Data: []byte("67108864"), Mode: 0o640}, "cpu": {Data: []byte("4"), Mode: 0o640},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	_, err = Files(p, []corev1.DownwardAPIVolumeFile{
		field("a", "spec.nodeName"), resourceOf("b", "none", "limits.cpu"), resourceOf("c", "", "limits.cpu"),
		{Path: "d"},
	}, 0o640, nil)
	wantErr := `file "a": unsupported fieldPath: spec.nodeName
file "b": container none not found
file "c": resourceFieldRef names no container
file "d": the item has neither fieldRef nor resourceFieldRef`
	if err == nil || err.Error() != wantErr {
		t.Errorf("got %v", err)
	}
}
