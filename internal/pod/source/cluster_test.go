package source

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

func apiPod(name string, uid types.UID, version string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, ResourceVersion: version},
		Spec:       corev1.PodSpec{NodeName: "node"},
	}
}

func clusterMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"key": value}}
}

// Sources are not synced before the API server has answered, but manifests count at once.
func TestClusterIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), manifestOf("web", "a"))
	r := start(t, Options{Path: dir, Cluster: true})
	<-r.LocalSynced()
	r.await([]string{webPod})
	r.Cluster.Restore([]*corev1.Pod{apiPod("a", "1", "1"), apiPod("b", "2", "1")})
	r.await([]string{"default/a", "default/b", webPod})
	if r.synced() {
		t.Error("synced without the API server")
	}
	r.Cluster.Replace([]*corev1.Pod{apiPod("a", "1", "2")})
	r.awaitSynced()
	r.await([]string{"default/a", webPod})
	if got := r.get("default/a"); got.Source != pod.SourceAPI || got.ResourceVersion != "2" {
		t.Errorf("the desired pod is %+v", got)
	}
	r.Cluster.Drop(apiPod("a", "1", "2"))
	r.await([]string{webPod})
}

// Pods of manifests and of the cluster lose the fields whose feature gates are off.
func TestIgnoredFields(t *testing.T) {
	dir := t.TempDir()
	const signal = "lifecycle: {stopSignal: SIGUSR1}"
	write(t, filepath.Join(dir, "web.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"+
		"spec: {os: {name: linux}, containers: [{name: app, image: app, "+signal+"}]}\n")
	r := start(t, Options{Path: dir, Cluster: true, Ignored: pod.Ignored{StopSignals: true}})
	p := apiPod("a", "1", "1")
	usr1 := corev1.SIGUSR1
	p.Spec.Containers = []corev1.Container{{Name: "app", Lifecycle: &corev1.Lifecycle{StopSignal: &usr1}}}
	r.Cluster.Replace([]*corev1.Pod{p})
	r.await([]string{"default/a", webPod})
	for _, name := range []string{"default/a", webPod} {
		if l := r.get(name).Spec.Containers[0].Lifecycle; l == nil || l.StopSignal != nil {
			t.Errorf("%s: the lifecycle is %+v, want one without a signal", name, l)
		}
	}
	p = p.DeepCopy()
	p.ResourceVersion = "2"
	r.Cluster.Put(p)
	for r.get("default/a").ResourceVersion != "2" {
		<-r.watch.C()
		for _, c := range r.watch.Changes() {
			r.note(c)
		}
	}
	if l := r.get("default/a").Spec.Containers[0].Lifecycle; l.StopSignal != nil {
		t.Error("an update brought the signal back")
	}
}

// If a manifest and the cluster want the same name, the manifest gets it. The cluster's pod runs once the name is free.
func TestClusterPodWithTakenName(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	r := start(t, Options{Path: dir, Cluster: true})
	r.Cluster.Replace([]*corev1.Pod{apiPod("web-node", "1", "1")})
	r.await([]string{webPod})
	write(t, file, manifestOf("web", "a"))
	static := r.awaitOther(webPod, "1")
	taken := "FailedValidation: the API server: pod default/web-node is already defined by " + file +
		": rename it, or remove one of the two"
	r.await([]string{webPod}, taken)
	if static.Source != pod.SourceFile {
		t.Errorf("the name went to %s", static.Origin)
	}
	r.Cluster.Put(apiPod("web-node", "1", "2"))
	r.await([]string{webPod}, taken)
	must(t, os.Remove(file))
	r.awaitOther(webPod, static.UID)
	r.await([]string{webPod})
	if got := r.get(webPod); got.UID != "1" || got.ResourceVersion != "2" {
		t.Errorf("then it went to %s %s", got.UID, got.ResourceVersion)
	}
	if _, err := r.Resize(t.Context(), types.NamespacedName{Namespace: "default", Name: "web-node"}, "app",
		corev1.ResourceRequirements{}); !errors.Is(err, ErrTaken) {
		t.Errorf("amend a pod of the cluster: %v", err)
	}
}

// The cluster's object replaces a manifest's. When the cluster's is gone, the manifest's counts again.
func TestClusterObjects(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "app.yaml")
	write(t, file, configMap("app", "mine", ""))
	r := start(t, Options{Path: dir, Cluster: true})
	<-r.LocalSynced()
	r.awaitValue(appConfig, "mine")
	other := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "other"}
	r.Cluster.Objects().Put(clusterMap("other", "alone"))
	r.awaitValue(other, "alone")
	r.Cluster.Objects().Put(clusterMap("app", "theirs"))
	r.awaitValue(appConfig, "theirs")
	r.await(nil,
		"FailedValidation: "+file+
			": ConfigMap default/app exists in the cluster too, whose object is used: rename it, or remove "+
			"one of the two")
	if !r.Supplies(appConfig) || r.Supplies(other) {
		t.Error("Supplies does not know the manifest's object")
	}
	r.Cluster.Objects().Drop(appConfig)
	r.awaitValue(appConfig, "mine")
	r.Cluster.Objects().Drop(other)
	r.awaitValue(other, "")
	r.await(nil)
}

// Mirror pods of the cluster do not run.
func TestClusterMirrors(t *testing.T) {
	r := start(t, Options{Cluster: true})
	mirror := apiPod("web-node", "1", "1")
	mirror.Annotations = map[string]string{pod.AnnotationMirror: "hash"}
	r.Cluster.Replace([]*corev1.Pod{mirror, apiPod("a", "2", "1")})
	r.await([]string{"default/a"})
	if got, ok := r.Cluster.Mirrors.Get(types.NamespacedName{Namespace: "default", Name: "web-node"}); !ok ||
		got != mirror {
		t.Errorf("the mirror is %v", got)
	}
}
