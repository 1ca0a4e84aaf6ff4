package container

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest/fake"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/pleg"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/podlog"
)

// bench is a node with one pod. It runs the containers under test on a fake runtime, with the real plan and what the
// real pleg observes.
type bench struct {
	*Containers
	t    *testing.T
	fake *fake.Runtime
	cri  *cri.Client
	pleg *pleg.PLEG
	dir  string

	pod     *pod.Pod
	sandbox string
	config  *runtimeapi.PodSandboxConfig
	probes  map[string]plan.Probes

	images    func(ctx context.Context, c pod.Container) error // nil: every image is present
	lifecycle *recorder
	tasks     *testTasks
	stops     chan pod.Stop

	mu       sync.Mutex
	said     []string
	replaced map[string]bool // ids
}

// loopback is a node with one address.
type loopback struct{}

func (loopback) HostIPs() []string { return []string{"127.0.0.1"} }

// onBench runs body in a synctest bubble, with a pod that has a sandbox and whose containers run the test workload.
func onBench(t *testing.T, spec corev1.PodSpec, body func(*testing.T, *bench)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, fake: fake.New(t), dir: dir, lifecycle: &recorder{}, stops: make(chan pod.Stop, 1)}
		b.cri = b.fake.Client(cri.Options{})
		b.pleg = pleg.New(pleg.Options{
			Runtime: b.cri.Runtime, Table: observed.New(), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		b.tasks = &testTasks{running: map[string]bool{}, failed: map[string]error{}}
		b.Containers = New(Options{
			Runtime: b.cri.Runtime, Images: b, Sandboxes: b, Volumes: b, Dirs: b, Observer: b.pleg, Events: b, Limit: b,
			Kills:        b,
			Replacements: b, Addresses: loopback{},
			Lifecycle: []Lifecycle{{}, b.lifecycle.hooks()}, LegacyLogDir: filepath.Join(dir, "containers"),
		})
		b.create(spec)
		ctx, cancel := context.WithCancel(t.Context())
		defer b.tasks.wg.Wait()
		defer cancel()
		b.tasks.ctx = ctx
		body(t, b)
	})
}

// Replace implements replacements.
func (b *bench) Replace(_ types.UID, _, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.replaced == nil {
		b.replaced = map[string]bool{}
	}
	b.replaced[id] = true
	return nil
}

func (b *bench) create(spec corev1.PodSpec) {
	b.t.Helper()
	p := &corev1.Pod{Spec: spec}
	p.Name, p.Namespace, p.UID = "web", "default", "6b1e"
	for i := range p.Spec.InitContainers {
		p.Spec.InitContainers[i].Image = fake.Image
	}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Image = fake.Image
	}
	b.pod = &pod.Pod{Pod: p}
	b.config = &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		LogDirectory: podlog.PodDir(b.dir, p.Namespace, p.Name, p.UID),
		Labels:       map[string]string{pod.LabelPodUID: string(p.UID)},
	}
	resp, err := b.cri.Runtime.RunPodSandbox(b.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: b.config})
	if err != nil {
		b.t.Fatal(err)
	}
	b.sandbox = resp.PodSandboxId
	b.refresh()
}

func (b *bench) refresh() {
	b.t.Helper()
	if err := b.pleg.Refresh(b.t.Context(), b.pod.UID); err != nil {
		b.t.Fatal(err)
	}
}

// The node's other parts, as the containers see them.

func (b *bench) Ensure(ctx context.Context, _ *corev1.Pod, c pod.Container) (*runtimeapi.Image, error) {
	if b.images != nil {
		if err := b.images(ctx, c); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.Image{Id: fake.Image}, nil
}

func (b *bench) Sandbox(types.UID) (string, *runtimeapi.PodSandboxConfig, []string, bool) {
	return b.sandbox, b.config, []string{"127.0.0.1"}, b.sandbox != ""
}

func (b *bench) Mounted(types.UID) map[string]pod.Volume { return nil }

func (b *bench) MountPath(_ context.Context, p *corev1.Pod, container string, index int, subPath string) (string,
	error) {
	c, _ := pod.FindContainer(p, container)
	m := c.VolumeMounts[index]
	switch path := filepath.Join(b.dir, m.Name); {
	case m.Name != "data":
		return "", fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, container)
	case subPath == "bad":
		return "", fmt.Errorf("bind subPath %q: it is bad", subPath)
	case subPath == "":
		return path, nil
	default:
		return fmt.Sprintf("%s/%s/%d/%s/%v", path, container, index, subPath, m.ReadOnly), nil
	}
}

func (b *bench) Hosts(*corev1.Pod, []string) (string, error) {
	return filepath.Join(b.dir, "hosts"), nil
}

func (b *bench) TerminationLog(_ *corev1.Pod, container string, n int) (string, error) {
	return filepath.Join(b.dir, "termination", container, fmt.Sprint(n)), nil
}

func (b *bench) Enter(context.Context, *corev1.Pod) (func(), error) { return func() {}, nil }

func (b *bench) Event(ref corev1.ObjectReference, kind, reason, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said,
		strings.TrimSpace(fmt.Sprintf("%s %s %s: %s", ref.FieldPath, kind, reason, fmt.Sprintf(format, args...))))
}

// events returns the events since the last call.
func (b *bench) events() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := b.said
	b.said = nil
	return said
}

// run returns the pod's current state as a step receives it.
func (b *bench) run() *worker.Run {
	o := b.pleg.Observed(b.pod.UID)
	b.mu.Lock()
	replaced := maps.Clone(b.replaced)
	b.mu.Unlock()
	return &worker.Run{Pod: b.pod, Observed: o, Stops: b.stops, Plan: plan.Compute(plan.Input{
		Pod: b.pod.Pod, Observed: o, Hash: pod.ContainerHashes(b.pod.Pod), Probes: b.probes, Now: time.Now(),
		Restart: replaced,
	})}
}

// pass runs the step once and waits until only time could change anything.
func (b *bench) pass() {
	b.t.Helper()
	if err := b.setup(b.tasks.ctx, b.run(), b.tasks); err != nil {
		b.t.Error(err)
	}
	synctest.Wait()
}

// sync runs passes until one changes nothing. It does not retry failures.
func (b *bench) sync() {
	b.t.Helper()
	for {
		before := b.tasks.count()
		b.pass()
		if b.tasks.count() == before {
			return
		}
	}
}

// stop ends the pod as the worker does: it interrupts setup, then tears down.
func (b *bench) stop(ctx context.Context, grace time.Duration) error {
	b.t.Helper()
	b.tasks.interrupt()
	b.refresh()
	r := b.run()
	r.Plan, r.Stop = plan.Plan{}, &pod.Stop{Reason: "Deleted", Grace: &grace, Remove: true}
	return b.Step().Teardown(ctx, r)
}

// calls returns the runtime calls so far that act on containers, such as "create app".
func (b *bench) calls() []string {
	names := map[string]string{}
	var out []string
	for _, call := range b.fake.Calls() {
		switch req := call.Request.(type) {
		case *runtimeapi.CreateContainerRequest:
			// Ids count up from 1, sandboxes too.
			names[fmt.Sprintf("container-%d", len(names)+2)] = req.Config.Metadata.Name
			out = append(out, "create "+req.Config.Metadata.Name)
		case *runtimeapi.StartContainerRequest:
			out = append(out, "start "+names[req.ContainerId])
		case *runtimeapi.StopContainerRequest:
			out = append(out, fmt.Sprintf("stop %s %d", names[req.ContainerId], req.Timeout))
		case *runtimeapi.RemoveContainerRequest:
			out = append(out, "remove "+names[req.ContainerId])
		case *runtimeapi.ExecSyncRequest:
			out = append(out, fmt.Sprintf("exec %s %v", names[req.ContainerId], req.Cmd))
		}
	}
	return out
}

// states returns each observed container's state by name, of the newest instance.
func (b *bench) states() map[string]string {
	b.refresh()
	out := map[string]string{}
	for _, c := range pod.Containers(b.pod.Pod) {
		if s, ok := b.pleg.Observed(b.pod.UID).Container(c.Name); ok {
			out[c.Name] = s.State.String()
		}
	}
	return out
}

func (b *bench) newest(name string) pod.ContainerStatus {
	b.t.Helper()
	b.refresh()
	c, ok := b.pleg.Observed(b.pod.UID).Container(name)
	if !ok {
		b.t.Fatalf("container %s is not known to the runtime", name)
	}
	return c
}

// testTasks works like the worker's tasks, but without retries: a key whose task failed is ignored until forgive.
type testTasks struct {
	ctx context.Context
	wg  sync.WaitGroup

	mu      sync.Mutex
	running map[string]bool
	failed  map[string]error
	ended   int
	all     context.Context // of all tasks, so that they are all interrupted at the same time
	cancel  context.CancelFunc
}

func (t *testTasks) Running(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[key]
}

func (t *testTasks) Go(ctx context.Context, key string, f func(context.Context) error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[key] || t.failed[key] != nil {
		return false
	}
	t.running[key] = true
	if t.cancel == nil {
		t.all, t.cancel = context.WithCancel(ctx)
	}
	ctx = t.all
	t.wg.Go(func() {
		err := f(ctx)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.running, key)
		t.ended++
		if err != nil {
			t.failed[key] = err
		}
	})
	return true
}

func (t *testTasks) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

func (t *testTasks) err(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed[taskOf(name)]
}

func (t *testTasks) forgive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.failed)
}

// interrupt ends the context of all tasks and waits until they have returned.
func (t *testTasks) interrupt() {
	t.mu.Lock()
	if t.cancel != nil {
		t.cancel()
		t.cancel = nil
	}
	t.mu.Unlock()
	t.wg.Wait()
}

// recorder is a Lifecycle that records its calls and can refuse.
type recorder struct {
	mu     sync.Mutex
	calls  []string
	refuse string // the call that fails, e.g. "PreCreate app"
	hang   string // the call that waits for its context
}

func (r *recorder) hooks() Lifecycle {
	return Lifecycle{PreCreate: r.PreCreate, PreStart: r.PreStart, PreStop: r.PreStop, PostStop: r.PostStop}
}

func (r *recorder) call(ctx context.Context, what string) error {
	r.mu.Lock()
	r.calls = append(r.calls, what)
	r.mu.Unlock()
	switch what {
	case r.refuse:
		return fmt.Errorf("no licence for container-2")
	case r.hang:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (r *recorder) PreCreate(ctx context.Context, _ *corev1.Pod, c pod.Container,
	config *runtimeapi.ContainerConfig) error {
	config.Annotations["example.com/hook"] = "was here"
	return r.call(ctx, "PreCreate "+c.Name)
}

func (r *recorder) PreStart(ctx context.Context, _ *corev1.Pod, c pod.Container, id string) error {
	return r.call(ctx, "PreStart "+c.Name+" "+id)
}

func (r *recorder) PreStop(ctx context.Context, id string) error { return r.call(ctx, "PreStop "+id) }

func (r *recorder) PostStop(ctx context.Context, id string) error { return r.call(ctx, "PostStop "+id) }

// runs returns a container that performs some actions of the test workload.
func runs(name string, actions ...string) corev1.Container {
	return corev1.Container{Name: name, Args: actions}
}

func execHandler(actions ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: append([]string{"/workload"}, actions...)}}
}

// links returns the names of the containers that have a link to their log.
func (b *bench) links() []string {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, "containers"))
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(b.dir, "containers", e.Name())); err != nil {
			b.t.Error(err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(e.Name(), "web_default_"), "-container-")
		names = append(names, name)
	}
	return names
}
