package manifest

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/base/golden"
)

// Each testdata/default/*.yaml must give the *.golden beside it.
func TestDefault(t *testing.T) {
	files, err := filepath.Glob("testdata/default/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := Decode(text, file)
			if err != nil || len(objects) != 1 {
				t.Fatalf("%d objects, error %v", len(objects), err)
			}
			pod := objects[0].Pod
			Default(pod)
			got, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, file[:len(file)-len("yaml")]+"golden", string(got))
		})
	}
}

func TestPullPolicy(t *testing.T) {
	const sum = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for image, want := range map[string]corev1.PullPolicy{
		"app":                           corev1.PullAlways,
		"app:latest":                    corev1.PullAlways,
		"registry.example:5000/app":     corev1.PullAlways,
		"registry.example:5000/app:1":   corev1.PullIfNotPresent,
		"app:1":                         corev1.PullIfNotPresent,
		"app:latest" + sum:              corev1.PullAlways,
		"app" + sum:                     corev1.PullIfNotPresent,
		"registry.example:5000/a" + sum: corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
}
