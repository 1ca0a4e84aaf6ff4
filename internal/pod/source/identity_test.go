package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// sized returns a manifest whose container has these resources.
func sized(name, image, requests string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  containers: [{name: app, image: '" +
		image + "', resources: {requests: " + requests + "}}]\n"
}

// The pod of a manifest keeps its UID when its resources are edited, even while no agent runs, and keeps its changes
// over the API.
func TestStaticPodIsResized(t *testing.T) {
	dir := t.TempDir()
	o := Options{Path: dir, Identities: filepath.Join(t.TempDir(), "identities.json")}
	file, key := filepath.Join(dir, "web.yaml"), types.NamespacedName{Namespace: "default", Name: "web-node"}
	write(t, file, sized("web", "app:1", "{cpu: 100m}"))
	r := start(t, o)
	r.awaitSynced()
	r.await([]string{webPod})
	first := r.get(webPod)
	cpu := func(r *rig) string { return r.get(webPod).Spec.Containers[0].Resources.Requests.Cpu().String() }
	until := func(r *rig, want string) {
		for cpu(r) != want {
			<-r.watch.C()
			for _, c := range r.watch.Changes() {
				r.note(c)
			}
		}
	}
	write(t, file, sized("web", "app:1", "{cpu: 200m}"))
	until(r, "200m")
	if _, err := r.Resize(t.Context(), key, "app",
		corev1.ResourceRequirements{Requests: requests("cpu", "300m")}); err != nil {
		t.Fatal(err)
	}
	until(r, "300m")
	r.stop()

	r = start(t, o)
	r.awaitSynced()
	r.await([]string{webPod})
	if got := r.get(webPod); got.UID != first.UID || cpu(r) != "300m" {
		t.Errorf("after a restart: UID %s, was %s; cpu %s", got.UID, first.UID, cpu(r))
	}
	r.stop()

	write(t, file, sized("web", "app:1", "{cpu: 400m}"))
	r = start(t, o)
	r.awaitSynced()
	r.await([]string{webPod})
	if got := r.get(webPod); got.UID != first.UID || cpu(r) != "400m" {
		t.Errorf("edited without an agent: UID %s, was %s; cpu %s", got.UID, first.UID, cpu(r))
	}
	must(t, os.Remove(file))
	r.await(nil)
	write(t, file, sized("web", "app:1", "{cpu: 400m}"))
	r.await([]string{webPod})
	if got := r.get(webPod); got.UID == first.UID {
		t.Error("a removed and restored manifest gave the same pod")
	}
}

// running is a runtime with one pod.
type running struct {
	uid      types.UID
	known    chan struct{} // closed when the runtime's pods are known
	searched int           // the merge's lock guards it
}

func (r *running) Await(context.Context) error { <-r.known; return nil }

func (r *running) Find(*pod.Pod) (types.UID, bool) { r.searched++; return r.uid, true }

// A static pod that already runs under another UID is adopted. The lookup runs when the manifest is first read, after
// the running pods are known.
func TestStaticPodIsAdopted(t *testing.T) {
	const runs = types.UID("00000000000000000000000000000001")
	dir, pods := t.TempDir(), &running{uid: runs, known: make(chan struct{})}
	o := Options{Path: dir, Identities: filepath.Join(t.TempDir(), "identities.json")}
	o.Running = pods
	file := filepath.Join(dir, "web.yaml")
	write(t, file, sized("web", "app:1", "{cpu: 100m}"))
	r := start(t, o)
	r.await(nil)
	close(pods.known)
	r.awaitSynced()
	r.await([]string{webPod})
	if got := r.get(webPod); got.UID != runs || got.Annotations[pod.AnnotationConfigHash] != string(runs) ||
		pods.searched != 1 {
		t.Errorf("UID %s, annotations %v, searched %d times", got.UID, got.Annotations, pods.searched)
	}
	r.stop()

	o.Running = nil
	r = start(t, o)
	r.awaitSynced()
	r.await([]string{webPod})
	if got := r.get(webPod); got.UID != runs {
		t.Errorf("after a restart: UID %s", got.UID)
	}
	must(t, os.Remove(file))
	r.await(nil)
	write(t, file, sized("web", "app:1", "{cpu: 100m}"))
	r.await([]string{webPod})
	if got := r.get(webPod); got.UID == runs {
		t.Error("a removed and restored manifest gave the same pod")
	}
}

func TestAmendLocal(t *testing.T) {
	r := start(t, Options{})
	text := sized("web", "app:1", "{cpu: 100m, memory: 64Mi}")
	first := r.apply(text)
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug",
		Image: "sh:1"}, TargetContainerName: "app"}
	if _, err := r.AddEphemeral(t.Context(), web, debug); err != nil {
		t.Fatal(err)
	}
	now, err := r.Resize(t.Context(), web, "app", corev1.ResourceRequirements{Requests: requests("cpu", "1")})
	if err != nil {
		t.Fatal(err)
	}
	if got := now.Spec.Containers[0].Resources.Requests; now.UID != first.Pod.UID || got.Cpu().String() != "1" ||
		got.Memory().String() != "64Mi" {
		t.Errorf("resized: UID %s, requests %v", now.UID, got)
	}
	again := r.apply(text)
	if got := again.Pod.Spec; again.Result != Configured || again.Pod.UID != first.Pod.UID ||
		got.Containers[0].Resources.Requests.Cpu().String() != "100m" || len(got.EphemeralContainers) != 1 {
		t.Errorf("applied again: %s, %+v", again.Result, got)
	}
	for name, try := range map[string]struct {
		key       types.NamespacedName
		container string
		resources corev1.ResourceRequirements
		refused   func(error) bool
	}{
		"another pod": {types.NamespacedName{Name: "x"}, "app", corev1.ResourceRequirements{}, func(err error) bool {
			return errors.Is(err, ErrNotFound)
		}},
		"another container": {web, "x", corev1.ResourceRequirements{}, invalidReason},
		"another resource": {web, "app", corev1.ResourceRequirements{Limits: requests("example.com/gpu", "1")},
			invalidReason},
		"another class": {web, "app",
			corev1.ResourceRequirements{Limits: requests("cpu", "100m", "memory", "64Mi")}, invalidReason},
		"more than allowed": {web, "app", corev1.ResourceRequirements{Limits: requests("cpu", "50m")}, invalidReason},
	} {
		if _, err := r.Resize(t.Context(), try.key, try.container, try.resources); !try.refused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func invalidReason(err error) bool { return reason.Of(err) == reason.FailedValidation }
