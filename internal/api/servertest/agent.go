package servertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/archive"
	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/podlog"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Agent serves the local API over pods that the test makes.
type Agent struct {
	Socket string
	Pods   *server.Pods
	// Objects are the objects that pods name. An apply adds none.
	Objects *object.Table
	Events  *event.Recorder
	// LogDir is the directory that WriteLog writes to.
	LogDir string
	// Files is the root directory of every container.
	Files string

	stop context.CancelFunc
	done chan error
	exec *execServer

	mu       sync.Mutex
	uids     int
	onApply  func(*corev1.Pod)
	onDelete func(*corev1.Pod)
	calls
	timelines []timeline.Timeline
	images    []api.Image
	loaded    []byte
	state
}

// calls records the requests about manifests and pods, and holds the answer to an explain.
type calls struct {
	applied   []server.ApplyOptions
	explained []api.Explanation
	deleted   []Deletion
}

// Deletion is one call of Applier.Delete.
type Deletion struct {
	Key   types.NamespacedName
	Grace *time.Duration
}

// Start serves the local API until the test ends.
func Start(t testing.TB) *Agent {
	t.Helper()
	// Not t.TempDir: a test's name may make it too long for a socket.
	dir, err := os.MkdirTemp("", "berth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return StartAt(t, filepath.Join(dir, "berth.sock"))
}

// StartAt is Start with the socket at a path.
func StartAt(t testing.TB, socket string) *Agent {
	t.Helper()
	a := &Agent{
		Socket:  socket,
		Pods:    store.New[types.NamespacedName, *corev1.Pod](),
		Objects: store.New[object.Key, runtime.Object](),
		Events: event.New(event.Options{Host: "node", Now: func() time.Time {
			return time.Now().Add(-50 * time.Hour)
		}}), // long ago, so that the age shown does not change in a slow test
		LogDir: t.TempDir(),
		Files:  t.TempDir(),
		done:   make(chan error, 1),
		exec:   newExecServer(t),
		state:  state{status: api.Status{Node: "node", Root: filepath.Dir(socket)}},
	}
	s := server.New(server.Options{
		Socket: socket, Pods: a.Pods, Events: a.Events, Applier: applier{a}, Explainer: explainer{a},
		Objects: objects{a.Objects}, Amender: amender{a}, Timelines: timelines{a},
		Images: images{a}, Streams: a.exec, Files: files{a}, Node: node{a}, Resources: resources{a},
		Metrics: prometheus.NewRegistry(),
		LogDir:  a.LogDir, Started: time.Unix(1000, 0), Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	go func() { a.done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-a.done:
		t.Fatalf("serve: %v", err)
	}
	t.Cleanup(func() {
		if err := a.Stop(); err != nil {
			t.Errorf("stop the local API: %v", err)
		}
	})
	return a
}

// Stop ends the agent and waits for that. It may be called again.
func (a *Agent) Stop() error {
	a.stop()
	err := <-a.done
	a.done <- nil
	return err
}

// Put adds or replaces a pod by name and returns it. A pod without a UID gets one.
func (a *Agent) Put(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Namespace = cmp.Or(p.Namespace, "default")
	if p.UID == "" {
		a.mu.Lock()
		a.uids++
		p.UID = types.UID(fmt.Sprintf("uid-%d", a.uids))
		a.mu.Unlock()
	}
	a.Pods.Put(keyOf(p), p)
	return p
}

func keyOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// Change changes an existing pod and returns it.
func (a *Agent) Change(key types.NamespacedName, change func(*corev1.Pod)) *corev1.Pod {
	p, ok := a.Pods.Get(key)
	if !ok {
		panic("no pod " + key.String())
	}
	p = p.DeepCopy()
	change(p)
	return a.Put(p)
}

// Finish ends a pod. The containers that have not ended before get this exit code.
func (a *Agent) Finish(key types.NamespacedName, code int32) {
	a.Change(key, func(p *corev1.Pod) { Terminate(p, code) })
}

// Remove deletes a pod.
func (a *Agent) Remove(key types.NamespacedName) { a.Pods.Delete(key) }

// OnApply sets a function that is called with every applied pod, after the pod is in the table.
func (a *Agent) OnApply(f func(*corev1.Pod)) { a.set(func() { a.onApply = f }) }

// OnDelete sets a function that is called with every pod whose deletion is requested. Without it the pod is
// removed at once, and its containers end with exit code 0.
func (a *Agent) OnDelete(f func(*corev1.Pod)) { a.set(func() { a.onDelete = f }) }

// SetTimelines sets the recorded timelines.
func (a *Agent) SetTimelines(lines ...timeline.Timeline) { a.set(func() { a.timelines = lines }) }

// SetImages sets the images of the runtime.
func (a *Agent) SetImages(images ...api.Image) { a.set(func() { a.images = images }) }

// SetStatus sets the agent's own state.
func (a *Agent) SetStatus(st api.Status) { a.set(func() { a.status = st }) }

// SetHealth sets the reason why the agent cannot work. nil makes it healthy.
func (a *Agent) SetHealth(err error) { a.set(func() { a.health = err }) }

func (a *Agent) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// Applied returns the options of all applies so far.
func (a *Agent) Applied() []server.ApplyOptions {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.applied)
}

// Deleted returns all deletions so far.
func (a *Agent) Deleted() []Deletion {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.deleted)
}

// Loaded returns the last image archive that a client sent.
func (a *Agent) Loaded() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.loaded)
}

// WriteLog appends lines of standard output to the log of a container's instance.
func (a *Agent) WriteLog(t testing.TB, p *corev1.Pod, container string, instance int, lines ...string) {
	t.Helper()
	path := filepath.Join(podlog.PodDir(a.LogDir, p.Namespace, p.Name, p.UID), podlog.File(container, instance))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, line := range lines {
		if _, err := fmt.Fprintf(f, "2026-03-01T12:00:00.000000001Z stdout F %s\n", line); err != nil {
			t.Fatal(err)
		}
	}
}

type applier struct{ *Agent }

func (a applier) Apply(_ context.Context, data []byte, opts server.ApplyOptions) ([]api.ApplyResult, error) {
	a.set(func() { a.applied = append(a.applied, opts) })
	var pods []*corev1.Pod
	for _, doc := range document.Split(data) {
		p, err := decode(doc, opts)
		if err != nil {
			return nil, err
		}
		if _, exists := a.Pods.Get(keyOf(p)); exists && opts.CreateOnly {
			return nil,
				answer.Next(apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, p.Name),
					"delete it first")
		}
		pods = append(pods, p)
	}
	a.mu.Lock()
	notify := a.onApply
	a.mu.Unlock()
	var results []api.ApplyResult
	for _, p := range pods {
		r := api.ApplyResult{Kind: api.KindPod, Namespace: p.Namespace, Name: p.Name, Action: api.Created}
		if was, exists := a.Pods.Get(keyOf(p)); exists {
			r.Action, p.UID = api.Configured, was.UID
		}
		if !opts.DryRun && !opts.NamesOnly {
			p = a.Put(p)
		}
		r.UID = p.UID
		results = append(results, r)
		if notify != nil && !opts.DryRun && !opts.NamesOnly {
			notify(p)
		}
	}
	return results, nil
}

func decode(doc document.Document, opts server.ApplyOptions) (*corev1.Pod, error) {
	data, err := doc.JSON()
	p := &corev1.Pod{}
	if err == nil {
		err = doc.Decode(data, p)
	}
	if err != nil {
		return nil, answer.BadRequest(fmt.Sprintf("%s: %v", opts.Origin, err), "correct the manifest")
	}
	if opts.Namespace != "" && p.Namespace != "" && p.Namespace != opts.Namespace {
		return nil, answer.BadRequest(fmt.Sprintf("%s: pod is in namespace %s", opts.Origin, p.Namespace), "")
	}
	p.Namespace = cmp.Or(p.Namespace, opts.Namespace, "default")
	p.Status.Phase = corev1.PodPending
	return p, nil
}

func (a applier) Delete(_ context.Context, key types.NamespacedName, opts server.DeleteOptions) (*corev1.Pod, error) {
	p, ok := a.Pods.Get(key)
	if !ok {
		return nil, answer.NotFound(key)
	}
	if opts.UID != "" && opts.UID != p.UID {
		return nil,
			apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, p.Name, errors.New("it has another UID"))
	}
	p = a.Change(key, func(p *corev1.Pod) {
		now := metav1.Now()
		p.DeletionTimestamp = &now
		seconds := int64(30)
		if opts.Grace != nil {
			seconds = int64(*opts.Grace / time.Second)
		}
		p.DeletionGracePeriodSeconds = &seconds
	})
	a.mu.Lock()
	a.deleted = append(a.deleted, Deletion{key, opts.Grace})
	notify := a.onDelete
	a.mu.Unlock()
	if notify != nil {
		notify(p)
		return p, nil
	}
	a.Finish(key, 0)
	a.Remove(key)
	return p, nil
}

type timelines struct{ *Agent }

func (a timelines) Find(namespace, name string) (timeline.Timeline, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.timelines {
		if t.Namespace == namespace && t.Name == name {
			return t, true
		}
	}
	return timeline.Timeline{}, false
}

func (a timelines) List() []timeline.Timeline {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.timelines)
	for i := range all {
		all[i].Spans = nil
	}
	return all
}

// files serves Agent.Files as the root directory of every container.
type files struct{ *Agent }

func (a files) Pack(ctx context.Context, _ *corev1.Pod, _, path string, w io.Writer) error {
	root, err := os.Open(a.Files)
	if err != nil {
		return err
	}
	defer root.Close()
	return archive.PackIn(ctx, root, path, w)
}

func (a files) Unpack(_ context.Context, _ *corev1.Pod, t server.FileTarget, r io.Reader) ([]string, error) {
	root, err := os.Open(a.Files)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return archive.UnpackIn(root, t.Path, t.Name, nil, r)
}

type node struct{ *Agent }

func (a node) Status(context.Context) api.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func (a node) Healthy(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.health
}
