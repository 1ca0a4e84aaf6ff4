package objects

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeclient "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// offlineNode is a node whose API server does not answer.
type offlineNode struct {
	*Cluster
	pods  *store.Table[types.UID, *pod.Pod]
	table *object.Table
}

type tableSink struct{ *object.Table }

func (s tableSink) Put(v object.Value)  { s.Table.Put(object.KeyOf(v), v) }
func (s tableSink) Drop(key object.Key) { s.Delete(key) }

type refuses struct{ http.RoundTripper }

func (refuses) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

func alone(t *testing.T, body func(n *offlineNode)) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubeclient.NewForConfig(&rest.Config{Host: "http://127.0.0.1", Transport: refuses{}})
		if err != nil {
			t.Fatal(err)
		}
		n := &offlineNode{pods: store.New[types.UID, *pod.Pod](), table: store.New[object.Key, runtime.Object]()}
		n.Cluster = New(Config{Client: client, Pods: n.pods, Sink: tableSink{n.table},
			Changed: wake.NewSet[object.Key](), Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Run(ctx) }()
		body(n)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func (n *offlineNode) wants(p *corev1.Pod) {
	n.pods.Put(p.UID, &pod.Pod{Pod: p, Source: pod.SourceAPI})
	synctest.Wait()
}

func (n *offlineNode) drops(p *corev1.Pod) {
	n.pods.Delete(p.UID)
	synctest.Wait()
}

// shows lists the objects in the table.
func (n *offlineNode) shows() map[string]bool {
	all := map[string]bool{}
	for key := range n.table.Snapshot().All() {
		all[key.String()] = true
	}
	return all
}

// keptPod is a saved pod. It names a Secret, a bound claim whose volume needs another Secret, and a ConfigMap that did
// not exist.
func keptPod(uid string) Kept {
	meta := metav1.ObjectMeta{Namespace: "app", Name: uid, UID: types.UID(uid), ResourceVersion: "1"}
	p := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s-" + uid}}},
		{Name: "b",
			VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("none")}}},
		{Name: "c",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c-" + uid}}},
	}}}
	secret, claim, volume, stage := meta, meta, meta, meta
	stage.Namespace, stage.Name = "drivers", "stage"
	secret.Name, claim.Name, volume.Namespace, volume.Name = "s-"+uid, "c-"+uid, "", "v-"+uid
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "db", ResourceVersion: "1"}}
	return Kept{Pod: p, Services: []*corev1.Service{service}, Objects: []object.Value{
		&corev1.Secret{ObjectMeta: secret},
		&corev1.PersistentVolumeClaim{ObjectMeta: claim,
			Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: volume.Name},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
		&corev1.PersistentVolume{ObjectMeta: volume,
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{
					NodeStageSecretRef: &corev1.SecretReference{Namespace: stage.Namespace, Name: stage.Name}},
			}}},
		&corev1.Secret{ObjectMeta: stage},
	}}
}

// Saved objects are visible while a pod names them. This holds also for objects that were saved for another pod.
func TestKeptObjectsGoWithTheirPods(t *testing.T) {
	alone(t, func(n *offlineNode) {
		a, b := keptPod("a"), keptPod("b")
		n.Restore([]Kept{a, b})
		n.wants(a.Pod)
		want := map[string]bool{"Secret app/s-a": true, "PersistentVolumeClaim app/c-a": true,
			"PersistentVolume v-a": true, "Secret drivers/stage": true}
		if diff := cmp.Diff(want, n.shows()); diff != "" {
			t.Errorf("while the API server is away (-want +got):\n%s", diff)
		}
		var names []string
		for _, key := range n.Names(a.Pod) {
			names = append(names, key.String())
		}
		if diff := cmp.Diff([]string{"ConfigMap app/none", "PersistentVolumeClaim app/c-a", "Secret app/s-a",
			"PersistentVolume v-a", "Secret drivers/stage"}, names); diff != "" {
			t.Errorf("objects of the pod (-want +got):\n%s", diff)
		}
		if services, err := n.Services(a.Pod); err != nil || len(services) != 1 {
			t.Errorf("services: %v, %v", services, err)
		}
		n.EndRestore()
		if diff := cmp.Diff(want, n.shows()); diff != "" {
			t.Errorf("before they are read again (-want +got):\n%s", diff)
		}
		n.drops(a.Pod)
		if diff := cmp.Diff(map[string]bool{}, n.shows()); diff != "" {
			t.Errorf("after the pod was removed (-want +got):\n%s", diff)
		}
	})
}

// A saved volume is dropped if the claim is bound to another volume now.
func TestKeptVolumeGoesWithItsClaim(t *testing.T) {
	alone(t, func(n *offlineNode) {
		a := keptPod("a")
		n.Restore([]Kept{a})
		n.wants(a.Pod)
		n.mu.Lock()
		claim := n.followers[object.Key{Kind: object.PersistentVolumeClaim, Namespace: "app", Name: "c-a"}]
		n.mu.Unlock()
		other := a.Objects[1].DeepCopyObject().(*corev1.PersistentVolumeClaim)
		other.ResourceVersion, other.Spec.VolumeName = "2", "v-other"
		claim.replace([]object.Value{other})
		want := map[string]bool{"Secret app/s-a": true, "PersistentVolumeClaim app/c-a": true}
		if diff := cmp.Diff(want, n.shows()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A saved absence counts only until the API server answers.
func TestASavedAbsenceEndsWithTheRestore(t *testing.T) {
	alone(t, func(n *offlineNode) {
		a, key := keptPod("a"), object.Key{Kind: object.ConfigMap, Namespace: "app", Name: "none"}
		n.wants(a.Pod)
		received := []bool{n.Received(key)}
		n.Restore([]Kept{a})
		received = append(received, n.Received(key))
		n.EndRestore()
		received = append(received, n.Received(key))
		if diff := cmp.Diff([]bool{false, true, false}, received); diff != "" {
			t.Errorf("received before, while restored, and after (-want +got):\n%s", diff)
		}
		if _, err := n.Services(a.Pod); err == nil {
			t.Error("saved services count after the API server has answered")
		}
	})
}
