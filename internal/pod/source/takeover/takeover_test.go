package takeover

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
)

const (
	uidA = types.UID("0123456789abcdef0123456789abcdef")
	uidB = types.UID("fedcba9876543210fedcba9876543210")
)

// runs returns a pod "web" with a container "app" that has this hash and age.
func runs(now time.Time, uid types.UID, state pod.ContainerState, hash string, ago time.Duration) *pod.Observed {
	return &pod.Observed{UID: uid, Namespace: "kube-system", Name: "web-node", Containers: []pod.ContainerStatus{
		{Name: "app", Hash: hash, State: state, CreatedAt: now.Add(-ago)},
	}}
}

func TestDecide(t *testing.T) {
	now := time.Now()
	running, exited := pod.StateRunning, pod.StateExited
	restarted := runs(now, uidA, running, "1", time.Minute)
	restarted.Containers = append(restarted.Containers, pod.ContainerStatus{Name: "app", Hash: "0", State: exited})
	strange := runs(now, uidA, running, "1", time.Minute)
	strange.Containers = append(strange.Containers, pod.ContainerStatus{Name: "other", Hash: "1", State: running})
	other := runs(now, uidA, running, "1", time.Minute)
	other.Namespace = "default"
	tests := []struct {
		name     string
		observed []*pod.Observed
		want     types.UID
	}{
		{"nothing", nil, ""},
		{"a kubelet's", []*pod.Observed{runs(now, uidA, running, "1", time.Minute)}, uidA},
		{"restarted with another image", []*pod.Observed{restarted}, uidA},
		{"between two runs", []*pod.Observed{runs(now, uidA, exited, "1", time.Minute)}, uidA},
		{"another image", []*pod.Observed{runs(now, uidA, running, "2", time.Minute)}, ""},
		{"a container that is not in the manifest", []*pod.Observed{strange}, ""},
		{"without containers", []*pod.Observed{{UID: uidA, Namespace: "kube-system", Name: "web-node"}}, ""},
		{"made before the manifest was written", []*pod.Observed{runs(now, uidA, running, "1", 2*time.Hour)}, ""},
		{"another namespace", []*pod.Observed{other}, ""},
		{"from the API", []*pod.Observed{runs(now, "0f54b3c1-8a3e-4c5b-9d20-5b5e3a7e0c11", running, "1", time.Minute)},
			""},
		{"one that runs before a newer one",
			[]*pod.Observed{runs(now, uidB, exited, "1", time.Second), runs(now, uidA, running, "1", time.Minute)},
			uidA},
		{"the newest",
			[]*pod.Observed{runs(now, uidA, exited, "1", time.Minute), runs(now, uidB, exited, "1", time.Second)},
			uidB},
	}
	for _, tt := range tests {
		got, ok := decide(types.NamespacedName{Namespace: "kube-system", Name: "web-node"},
			map[string]string{"app": "1", "init": "3"}, now.Add(-time.Hour), tt.observed)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, ok, tt.want)
		}
	}
}

// A file has a modification time, a URL has none.
func TestFind(t *testing.T) {
	now := time.Now()
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &pod.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "web-node"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}}
	hash := pod.ContainerHash(&p.Spec.Containers[0])
	pods := Pods{Observed: observed.New()}
	pods.Observed.Put(uidA, runs(now, uidA, pod.StateRunning, hash, time.Minute))
	for _, tt := range []struct {
		name    string
		source  pod.Source
		origin  string
		written time.Time
		want    types.UID
	}{
		{"written before", pod.SourceFile, file, now.Add(-time.Hour), uidA},
		{"written since", pod.SourceFile, file, now, ""},
		{"gone", pod.SourceFile, file + "x", now, ""},
		{"from a URL", pod.SourceURL, "http://localhost/web.yaml", now, uidA},
	} {
		if err := os.Chtimes(file, tt.written, tt.written); err != nil {
			t.Fatal(err)
		}
		p.Source, p.Origin = tt.source, tt.origin
		if got, _ := pods.Find(p); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
