package servertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/live"
	"github.com/berth-run/berth/internal/api/nodeinfo"
	"github.com/berth-run/berth/internal/api/past"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/api/usage"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/history"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/lifeline"
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
	// Lifelines follow Pods. Tests report the results of probes.
	Lifelines *lifeline.Recorder
	// LogDir is the directory that WriteLog writes to.
	LogDir string
	// Files is the root directory of every container.
	Files string

	stop     context.CancelFunc
	done     chan error
	recorded chan struct{} // closed when Lifelines has ended
	exec     *execServer

	pods      *pods
	timelines *timelines
	images    *images
	node      *node
	samples   *samples
	changed   struct{ images, starts, topology wake.Broadcast }
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
		LogDir:    t.TempDir(),
		Files:     t.TempDir(),
		Lifelines: lifeline.New(time.Now()),

		done:     make(chan error, 1),
		recorded: make(chan struct{}),
		exec:     newExecServer(t),

		timelines: &timelines{},
		images:    &images{},
		samples:   &samples{changed: make(chan struct{})},
		node:      &node{status: api.Status{Node: "node", Root: filepath.Dir(socket)}},
	}
	a.pods = &pods{table: a.Pods}
	ready := make(chan struct{})
	s := server.New(server.Options{
		Socket: socket, Ready: ready, Pods: a.Pods, Events: a.Events, Applier: a.pods, Explainer: a.pods,
		Objects: objects{a.Objects}, Amender: a.pods,
		Images: a.images, Streams: a.exec, Files: files{a.Files},
		Info: nodeinfo.Info{Node: a.node, Resources: a.node, Metrics: prometheus.NewRegistry(), Stats: a.node,
			Feed: usage.New(a.node)},
		Past: past.Past{History: a.samples, Lifelines: a.Lifelines, Timelines: a.timelines},
		Changes: live.Changes{live.Images: {&a.changed.images}, live.Starts: {&a.changed.starts},
			live.Topology: {&a.changed.topology}},
		LogDir: a.LogDir, Started: time.Unix(1000, 0), Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	go func() { a.done <- s.Run(ctx) }()
	go func() {
		defer close(a.recorded)
		_ = a.Lifelines.Run(ctx, a.Pods) // ends with ctx
	}()
	select {
	case <-ready:
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
	<-a.recorded
	return err
}

// Finish ends a pod. The containers that have not ended before get this exit code.
func (a *Agent) Finish(key types.NamespacedName, code int32) {
	a.pods.change(key, func(p *corev1.Pod) { Terminate(p, code) })
}

// Put adds or replaces a pod by name and returns it. A pod without a UID gets one.
func (a *Agent) Put(p *corev1.Pod) *corev1.Pod { return a.pods.put(p) }

// Change changes an existing pod and returns it.
func (a *Agent) Change(key types.NamespacedName, change func(*corev1.Pod)) *corev1.Pod {
	return a.pods.change(key, change)
}

// Remove deletes a pod.
func (a *Agent) Remove(key types.NamespacedName) { a.Pods.Delete(key) }

// OnApply sets a function that is called with every applied pod, after the pod is in the table.
func (a *Agent) OnApply(f func(*corev1.Pod)) { set(&a.pods.mu, &a.pods.onApply, f) }

// OnDelete sets a function that is called with every pod whose deletion is requested. Without it the pod is
// removed at once, and its containers end with exit code 0.
func (a *Agent) OnDelete(f func(*corev1.Pod)) { set(&a.pods.mu, &a.pods.onDelete, f) }

// SetExplanations sets the answer to an explain of any manifests that are not empty.
func (a *Agent) SetExplanations(all ...api.Explanation) { set(&a.pods.mu, &a.pods.explained, all) }

// SetTimelines sets the recorded timelines.
func (a *Agent) SetTimelines(lines ...timeline.Timeline) {
	set(&a.timelines.mu, &a.timelines.lines, lines)
	a.changed.starts.Wake()
}

// SetImages sets the images of the runtime.
func (a *Agent) SetImages(all ...api.Image) {
	set(&a.images.mu, &a.images.all, all)
	a.changed.images.Wake()
}

// SetStatus sets the agent's own state.
func (a *Agent) SetStatus(st api.Status) { set(&a.node.mu, &a.node.status, st) }

// SetHealth sets the reason why the agent cannot work. nil makes it healthy.
func (a *Agent) SetHealth(err error) { set(&a.node.mu, &a.node.health, err) }

// SetResources sets the node's resources and the ones that pods hold.
func (a *Agent) SetResources(n resource.Node, held resource.Held) {
	set(&a.node.mu, &a.node.machine, n)
	set(&a.node.mu, &a.node.held, held)
	a.changed.topology.Wake()
}

// SetHistory sets the samples of what the node used.
func (a *Agent) SetHistory(all ...history.Sample) { a.samples.set(all) }

// FailLoads makes the load of an image archive fail from now on.
func (a *Agent) FailLoads(err error) { set(&a.images.mu, &a.images.failed, err) }

// SetUsage sets what the node and its pods use now.
func (a *Agent) SetUsage(s statsapi.Summary) { set(&a.node.mu, &a.node.usage, s) }

// Applied returns the options of all applies and explains so far.
func (a *Agent) Applied() []server.ApplyOptions {
	return slices.Clone(get(&a.pods.mu, &a.pods.applied))
}

// Deleted returns all deletions so far.
func (a *Agent) Deleted() []Deletion { return slices.Clone(get(&a.pods.mu, &a.pods.deleted)) }

// Loaded returns the last image archive that a client sent.
func (a *Agent) Loaded() []byte { return slices.Clone(get(&a.images.mu, &a.images.loaded)) }

func set[T any](mu *sync.Mutex, field *T, value T) {
	mu.Lock()
	defer mu.Unlock()
	*field = value
}

func get[T any](mu *sync.Mutex, field *T) T {
	mu.Lock()
	defer mu.Unlock()
	return *field
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
