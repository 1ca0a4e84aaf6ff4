package offline

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

func apiPod(uid string, change ...func(*corev1.Pod)) *pod.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: "pod-" + uid,
		ResourceVersion: "7"}}
	p.Spec.Containers = []corev1.Container{{Name: "app",
		EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}}}
	for _, c := range change {
		c(p)
	}
	return &pod.Pod{Pod: p, Source: pod.SourceAPI}
}

func always(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationAlways: "true"} }

func TestWantedSavesOnlyLivePodsOfTheAPIServer(t *testing.T) {
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	static := apiPod("u", always)
	static.Source = pod.SourceFile
	for name, c := range map[string]struct {
		pod       *pod.Pod
		all, some bool
	}{
		"a pod":         {apiPod("u"), true, false},
		"marked":        {apiPod("u", always), true, true},
		"ended":         {apiPod("u", always, ended), false, false},
		"being deleted": {apiPod("u", always, deleted), false, false},
		"not the API's": {static, false, false},
		"marked as none": {apiPod("u", func(p *corev1.Pod) {
			p.Annotations = map[string]string{AnnotationAlways: "false"}
		}), true, false},
	} {
		if all, some := wanted(c.pod, true), wanted(c.pod, false); all != c.all || some != c.some {
			t.Errorf("%s: saved %t, and %t when only marked pods are saved; want %t and %t", name, all, some, c.all,
				c.some)
		}
	}
}

func TestStartableDropsPodsThatAreTooOld(t *testing.T) {
	kept := []Kept{{Pod: apiPod("a").Pod}, {Pod: apiPod("b", always).Pod}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		answered time.Duration
		age      time.Duration
		want     int
	}{{time.Hour, 0, 2}, {time.Hour, time.Hour, 2}, {time.Hour + 1, time.Hour, 1}} {
		if got := startable(kept, now.Add(-c.answered), now, c.age); len(got) != c.want {
			t.Errorf("answered %v ago, maximum %v: %d pods, want %d", c.answered, c.age, len(got), c.want)
		}
	}
}

// server is an API server with the objects that a test has set. Each pod names one Secret and has one token.
type server struct {
	answers bool
	unknown map[object.Key]bool
	sets    Sets
}

func (s *server) Answers() bool                                 { return s.answers }
func (s *server) Sets(*corev1.Pod, []object.Value) (Sets, bool) { return s.sets, true }
func (s *server) Received(k object.Key) bool                    { return !s.unknown[k] }

func (s *server) Names(p *corev1.Pod) []object.Key {
	return []object.Key{{Kind: object.Secret, Namespace: p.Namespace,
		Name: p.Spec.Containers[0].EnvFrom[0].SecretRef.Name}}
}

func (s *server) Of(uid types.UID) map[string]token.Token {
	return map[string]token.Token{"api": {Value: "token of " + string(uid)}}
}

// node holds the inputs of an Offline.
type node struct {
	Options
	*server
}

// Working implements fleet.
func (*server) Working(types.UID) bool { return true }

func newNode(t *testing.T) *node {
	n := &node{server: &server{answers: true, unknown: map[object.Key]bool{}}}
	n.Options = Options{
		Root: t.TempDir(), All: true, Desired: store.New[types.UID, *pod.Pod](),
		Objects: store.New[object.Key, runtime.Object](),
		Fleet:   n.server,
		Cluster: n.server, Server: n.server, Tokens: n.server,
		Now: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	return n
}

func (n *node) secret(value string) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
		Data: map[string][]byte{"k": []byte(value)}}
	n.Objects.Put(object.KeyOf(s), s)
}

// during runs an Offline of the node while change is called.
func (n *node) during(t *testing.T, what func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := New(n.Options)
		if _, err := o.Load(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.Run(ctx) }()
		what()
		o.Resync()
		time.Sleep(3 * delay)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func (n *node) load(t *testing.T) map[types.UID]Kept {
	t.Helper()
	kept, err := New(n.Options).Load()
	if err != nil {
		t.Fatal(err)
	}
	m := map[types.UID]Kept{}
	for _, k := range kept {
		m[k.Pod.UID] = k
	}
	return m
}

func TestAPodIsSavedWithAllThatItNeeds(t *testing.T) {
	n := newNode(t)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}}
	n.sets = Sets{Services: []*corev1.Service{service}}
	n.during(t, func() { n.secret("one"); n.Desired.Put("a", apiPod("a")) })
	n.during(t, func() { n.secret("two") })
	got := n.load(t)["a"]
	want := Kept{
		Sets: Sets{Services: []*corev1.Service{service}},
		Pod:  bare(apiPod("a").Pod), Tokens: map[string]token.Token{"api": {Value: "token of a"}},
		Objects: []object.Value{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
			Data: map[string][]byte{"k": []byte("two")}}},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(token.Token{})); d != "" {
		t.Error(d)
	}
	file := filepath.Join(n.Root, "offline", "pods", "a")
	entries, err := filepath.Glob(file + "*")
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	data, err := os.ReadFile(entries[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, plain := range []string{"two", "dHdv", "token of a", "SecretRef", "secretRef"} {
		if strings.Contains(string(data), plain) {
			t.Errorf("%q can be read on disk", plain)
		}
	}
	if info, err := os.Stat(entries[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
}

func TestASavedPodIsDeletedOnlyAfterTheServerAnswers(t *testing.T) {
	n := newNode(t)
	n.secret("one")
	n.during(t, func() { n.Desired.Put("a", apiPod("a")); n.Desired.Put("b", apiPod("b")) })
	n.answers = false
	n.Desired.Delete("a") // an agent that has just started has no desired pods yet
	n.during(t, func() {})
	if got := n.load(t); len(got) != 2 {
		t.Fatalf("%d saved pods while the API server is away, want 2", len(got))
	}
	n.answers = true
	n.during(t, func() {})
	if got := n.load(t); len(got) != 1 || got["b"].Pod == nil {
		t.Errorf("saved %v, want b", got)
	}
}

func TestASavedObjectStaysWhileUnknown(t *testing.T) {
	n := newNode(t)
	n.secret("one")
	n.during(t, func() { n.Desired.Put("a", apiPod("a")) })
	key := object.Key{Kind: object.Secret, Namespace: "default", Name: "s"}
	n.Objects.Delete(key)
	n.unknown[key] = true
	n.during(t, func() { n.Desired.Put("a", apiPod("a", always)) })
	if got := n.load(t)["a"]; len(got.Objects) != 1 {
		t.Errorf("objects %v, want the saved Secret", got.Objects)
	}
}

// Owners of objects, and the claims that were created for a pod, are saved.
func TestOwnersAndClaimsAreSaved(t *testing.T) {
	n := newNode(t)
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod-a", UID: "a", Controller: new(true)}}
	owned := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", OwnerReferences: owner}}
	n.Objects.Put(object.KeyOf(owned), owned)
	drivers := []*storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"},
		Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}}}
	n.sets = Sets{Drivers: drivers}
	made := corev1.PodStatus{
		ResourceClaimStatuses:       []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("a-gpu-x")}},
		ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "a-extended"},
	}
	n.during(t, func() {
		n.Desired.Put("a",
			apiPod("a", func(p *corev1.Pod) { p.Status = *made.DeepCopy(); p.Status.Phase = corev1.PodRunning }))
	})
	got := n.load(t)["a"]
	if diff := cmp.Diff(made, got.Pod.Status) + cmp.Diff(owner, got.Objects[0].GetOwnerReferences()) +
		cmp.Diff(drivers, got.Sets.Drivers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStamp(t *testing.T) {
	kept := func(change func(*Kept)) Kept {
		k := Kept{
			Pod:     apiPod("a").Pod,
			Objects: []object.Value{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", ResourceVersion: "1"}}},
			Sets: Sets{
				Services: []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "db", ResourceVersion: "2"}}}},
			Tokens: map[string]token.Token{"api": {Expires: time.Unix(100, 0)}},
		}
		change(&k)
		return k
	}
	was := stamp(kept(func(*Kept) {}))
	for name, c := range map[string]struct {
		change func(*Kept)
		same   bool
	}{
		"nothing":        {func(*Kept) {}, true},
		"the pod":        {func(k *Kept) { k.Pod.ResourceVersion = "8" }, false},
		"an object":      {func(k *Kept) { k.Objects[0].SetResourceVersion("3") }, false},
		"an object went": {func(k *Kept) { k.Objects = nil }, false},
		"a service":      {func(k *Kept) { k.Sets.Services[0].ResourceVersion = "3" }, false},
		"a driver": {func(k *Kept) {
			k.Sets.Drivers = []*storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: "d", ResourceVersion: "3"}}}
		}, false},
		"a token": {func(k *Kept) {
			k.Tokens = map[string]token.Token{"api": {Expires: time.Unix(101, 0)}}
		}, false},
		"another's token": {func(k *Kept) {
			k.Tokens = map[string]token.Token{"vault": {Expires: time.Unix(100, 0)}}
		}, false},
	} {
		if got := stamp(kept(c.change)) == was; got != c.same {
			t.Errorf("%s: the same stamp: %t, want %t", name, got, c.same)
		}
	}
	if s := stamp(kept(func(k *Kept) { k.Objects[0].SetResourceVersion("") })); s != "" {
		t.Errorf("without a version: %q", s)
	}
}

// counted is a Secret that counts how often it is encoded.
type counted struct {
	*corev1.Secret
	times *int
}

func (c counted) DeepCopyObject() runtime.Object { return counted{c.Secret.DeepCopy(), c.times} }

func (c counted) MarshalJSON() ([]byte, error) {
	*c.times++
	return json.Marshal(c.Secret)
}

// A pod is checked at each pass of its worker, and encoded only after a change.
func TestAnUnchangedPodIsNotEncoded(t *testing.T) {
	n, times := newNode(t), 0
	secret := counted{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", ResourceVersion: "1"}}, &times}
	n.Objects.Put(object.KeyOf(secret.Secret), secret)
	o := New(n.Options)
	if _, err := o.Load(); err != nil {
		t.Fatal(err)
	}
	look := func() int {
		t.Helper()
		if err := o.writeOne("a"); err != nil {
			t.Fatal(err)
		}
		return times
	}
	n.Desired.Put("a", apiPod("a"))
	got := []int{look(), look()}
	n.Desired.Put("a", apiPod("a", func(p *corev1.Pod) { p.ResourceVersion = "8" }))
	got = append(got, look(), look())
	if diff := cmp.Diff([]int{1, 1, 2, 2}, got); diff != "" {
		t.Errorf("encoded (-want +got):\n%s", diff)
	}
}

func TestKeys(t *testing.T) {
	n := newNode(t)
	n.secret("one")
	n.during(t, func() { n.Desired.Put("a", apiPod("a")) })
	made := filepath.Join(n.Root, "offline", "key")
	if err := os.Rename(made, made+".lost"); err != nil {
		t.Fatal(err)
	}
	if _, err := New(n.Options).Load(); err == nil ||
		!strings.Contains(err.Error(), "default/pod-a (a): it was encrypted with another key") {
		t.Errorf("another key: %v", err)
	}
	n.KeyFile = made + ".lost"
	if got := n.load(t); len(got) != 1 {
		t.Errorf("with the configured key: %d pods, want 1", len(got))
	}
	if err := os.Chmod(n.KeyFile, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := New(n.Options).Load(); err == nil || !strings.Contains(err.Error(), "chmod 0600") {
		t.Errorf("a key that others may read: %v", err)
	}
	n.KeyFile = filepath.Join(n.Root, "none")
	if _, err := New(n.Options).Load(); err == nil {
		t.Error("a key file that is given and not there was made")
	}
}

// copyOf returns the content of the saved pods and of the index.
func (n *node) copyOf(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	all, err := filepath.Glob(filepath.Join(n.Root, "offline", "pods", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(all, filepath.Join(n.Root, "offline", "index")) {
		if files[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func restore(t *testing.T, files map[string][]byte) {
	t.Helper()
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever can write the files, but has no key, brings back the file of a pod that was deleted or replaced.
func TestAnOlderCopyOfAPodIsNotUsed(t *testing.T) {
	n := newNode(t)
	n.secret("one")
	n.during(t, func() { n.Desired.Put("a", apiPod("a")); n.Desired.Put("b", apiPod("b")) })
	old := n.copyOf(t)
	n.during(t, func() { n.Desired.Delete("a"); n.secret("two") })
	index := filepath.Join(n.Root, "offline", "index")
	delete(old, index)
	restore(t, old)
	kept, err := New(n.Options).Load()
	if len(kept) != 0 || err == nil || strings.Count(err.Error(), "not the copy that was saved last") != 2 {
		t.Errorf("%d pods, %v", len(kept), err)
	}
	// The copies are replaced and removed when the API server answers.
	o := New(n.Options)
	_, _ = o.Load() // the error is the same
	for _, uid := range []types.UID{"a", "b"} {
		if err := o.writeOne(uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.finish(); err != nil {
		t.Fatal(err)
	}
	if got := n.load(t); len(got) != 1 || string(got["b"].Objects[0].(*corev1.Secret).Data["k"]) != "two" {
		t.Errorf("saved %v, want b with its new Secret", got)
	}
	// Without the index, no copy is known to be current.
	if err := os.Remove(index); err != nil {
		t.Fatal(err)
	}
	if kept, err := New(n.Options).Load(); len(kept) != 0 || err == nil ||
		!strings.Contains(err.Error(), "is missing") {
		t.Errorf("without the index: %d pods, %v", len(kept), err)
	}
}

// Whoever can write the files, but has no key, removes all of them. After the agent has made new ones, the older copies
// are put back.
func TestAnOlderCopyIsNotUsedAfterTheLossOfTheIndex(t *testing.T) {
	n := newNode(t)
	n.secret("one")
	n.during(t, func() { n.Desired.Put("a", apiPod("a")) })
	n.during(t, func() { n.secret("two") })
	old := n.copyOf(t)
	for path := range old {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	n.Now = func() time.Time { return time.Now().Add(time.Hour) }
	n.during(t, func() { n.secret("three") })
	delete(old, filepath.Join(n.Root, "offline", "index"))
	restore(t, old)
	if kept, err := New(n.Options).Load(); len(kept) != 0 || err == nil ||
		!strings.Contains(err.Error(), "not the copy that was saved last") {
		t.Errorf("%d pods, %v", len(kept), err)
	}
}

// Whoever can write the files, but has no key, edits the index.
func TestAnEditedIndexAcceptsNoPod(t *testing.T) {
	for name, edit := range map[string]func(path string) error{
		"damaged": func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"of another key": func(path string) error {
			other, err := aead(make([]byte, keySize))
			return errors.Join(err, saveIndex(path, other, index{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.secret("one")
			n.during(t, func() { n.Desired.Put("a", apiPod("a")) })
			if err := edit(filepath.Join(n.Root, "offline", "index")); err != nil {
				t.Fatal(err)
			}
			kept, err := New(n.Options).Load()
			if len(kept) != 0 || err == nil || !strings.Contains(err.Error(), "none of them is used") {
				t.Errorf("%d pods, %v", len(kept), err)
			}
			o := New(n.Options)
			_, _ = o.Load() // the index is still the edited one, or it is missing
			if err := errors.Join(o.writeOne("a"), o.finish()); err != nil {
				t.Fatal(err)
			}
			if got := n.load(t); len(got) != 1 {
				t.Errorf("%d pods after the API server has answered, want 1", len(got))
			}
		})
	}
}

// An agent was killed after it had saved a pod and before it saved the index.
func TestAPodThatIsNewerThanTheIndexIsUsed(t *testing.T) {
	n := newNode(t)
	n.secret("one")
	n.during(t, func() { n.Desired.Put("a", apiPod("a")) })
	index := filepath.Join(n.Root, "offline", "index")
	old, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	n.during(t, func() { n.secret("two"); n.Desired.Put("b", apiPod("b")) })
	restore(t, map[string][]byte{index: old})
	got := n.load(t)
	if len(got) != 2 || string(got["a"].Objects[0].(*corev1.Secret).Data["k"]) != "two" {
		t.Errorf("saved %v, want both with the new Secret", got)
	}
}
