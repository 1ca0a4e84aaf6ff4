package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	kubelet "github.com/berth-run/berth/internal/pod/steps/device/checkpoint"
	"github.com/berth-run/berth/internal/pod/steps/device/record"
	"github.com/berth-run/berth/internal/pod/steps/device/record/recordtest"
	"github.com/berth-run/berth/internal/pod/steps/device/supply"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/test/deviceplugin"
)

// node runs a Devices in directories of a test's own.
type node struct {
	*Devices
	t       *testing.T
	ledger  *resource.Ledger
	changed admissions
	stop    func()
	events  []string // events
	marked  atomic.Pointer[func(types.UID)]
}

// admissions receives a value for each change of the inventory.
type admissions chan struct{}

// Reconsider implements admission.
func (a admissions) Reconsider() { a <- struct{}{} }

// Mark implements statuses.
func (n *node) Mark(uid types.UID) {
	if f := n.marked.Load(); f != nil {
		(*f)(uid)
	}
}

// Plugins returns the state of the plugins.
func (n *node) Plugins() map[corev1.ResourceName]supply.Plugin { return n.supply.Plugins() }

// Event implements event.Sink.
func (n *node) Event(ref corev1.ObjectReference, _, reason, format string, args ...any) {
	n.events = append(n.events, ref.Name+" "+reason+": "+fmt.Sprintf(format, args...))
}

// patience limits waits in tests. The awaited changes take milliseconds.
const patience = 20 * time.Second

func start(t *testing.T, root string) *node {
	t.Helper()
	n := &node{t: t,
		ledger: resource.NewLedger(resource.LedgerOptions{Dir: filepath.Join(root, "ledger"),
			Log: slog.New(slog.DiscardHandler)}), changed: make(admissions, 100)}
	if _, err := n.ledger.Load(); err != nil {
		t.Fatal(err)
	}
	n.Devices = New(Options{
		Dir: filepath.Join(root, "device-plugins"), State: filepath.Join(root, "devices"), Machine: topology.Of(0, 1),
		Boot: "boot-1", Ledger: n.ledger,
		Admission: n.changed, Statuses: n, Events: n, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err := n.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.supply.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	n.stop = func() { cancel(); running.Wait() }
	t.Cleanup(n.stop)
	return n
}

// short returns a temporary directory with a name short enough for socket paths.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (n *node) plugin(o deviceplugin.Options) *deviceplugin.Plugin {
	n.t.Helper()
	o.Dir = n.opts.Dir
	p, err := deviceplugin.Start(o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(p.Stop)
	n.await(func() bool { return n.Plugins()[corev1.ResourceName(o.Resource)].Served })
	return p
}

// await returns when the condition holds. It checks after each change of the inventory.
func (n *node) await(so func() bool) {
	n.t.Helper()
	late := time.After(patience)
	for !so() {
		select {
		case <-n.changed:
		case <-late:
			n.t.Fatalf("not in time; the inventory is %+v", n.Inventory())
		}
	}
}

func (n *node) healthy() (ids []device.ID) {
	for _, d := range n.Inventory()[gpu] {
		if d.Healthy {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func web(uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "default", Name: string(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}
}

func (n *node) holds(uid types.UID, ids ...device.ID) *corev1.Pod {
	n.t.Helper()
	if err := n.ledger.Commit(uid, holding(map[string][]device.ID{"app": ids})); err != nil {
		n.t.Fatal(err)
	}
	return web(uid)
}

// create returns an empty configuration after PreCreate has changed it.
func (n *node) create(ctx context.Context, p *corev1.Pod) (*runtimeapi.ContainerConfig, error) {
	config := &runtimeapi.ContainerConfig{}
	return config, n.PreCreate(ctx, p, pod.Containers(p)[0], config)
}

func (n *node) created(p *corev1.Pod, want *runtimeapi.ContainerConfig) {
	n.t.Helper()
	got, err := n.create(n.t.Context(), p)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
		n.t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func given(id string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Envs:        []*runtimeapi.KeyValue{{Key: "GPU_DEVICES", Value: []byte(id)}},
		Devices:     []*runtimeapi.Device{{ContainerPath: "/dev/" + id, HostPath: "/dev/zero", Permissions: "rw"}},
		Annotations: map[string]string{"example.com/gpu": id},
	}
}

func TestAPluginComesAndGoes(t *testing.T) {
	n := start(t, short(t))
	if len(n.Inventory()) != 0 {
		t.Fatalf("the inventory is not empty: %v", n.Inventory())
	}
	p := n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 3, NUMA: 2})
	want := device.Inventory{gpu: {
		{ID: "gpu-0", Healthy: true, Nodes: topology.Of(0)}, {ID: "gpu-1", Healthy: true, Nodes: topology.Of(1)},
		{ID: "gpu-2", Healthy: true, Nodes: topology.Of(0)},
	}}
	if diff := cmp.Diff(want, n.Inventory()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	n.holds("u1", "gpu-0", "gpu-1", "gone")
	status := func() (all []corev1.ResourceHealthStatus) {
		for _, h := range n.Status("u1", "app")[0].Resources {
			all = append(all, h.Health)
		}
		return all
	}
	if err := p.SetHealthy("gpu-1", false); err != nil {
		t.Fatal(err)
	}
	n.await(func() bool { return slices.Equal(n.healthy(), []device.ID{"gpu-0", "gpu-2"}) })
	const unknown = corev1.ResourceHealthStatusUnknown
	if diff := cmp.Diff([]corev1.ResourceHealthStatus{unknown, corev1.ResourceHealthStatusHealthy,
		corev1.ResourceHealthStatusUnhealthy}, status()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Stop()
	n.await(func() bool { return !n.Plugins()[gpu].Served })
	if got := n.Inventory()[gpu]; len(got) != 3 || len(n.healthy()) != 0 {
		t.Errorf("the devices of a lost plugin are %v", got)
	}
	if diff := cmp.Diff([]corev1.ResourceHealthStatus{unknown, unknown, unknown}, status()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 2})
	if diff := cmp.Diff(device.Inventory{gpu: {{ID: "gpu-0", Healthy: true}, {ID: "gpu-1", Healthy: true}}},
		n.Inventory()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The devices of a plugin that does not return are removed after five minutes, even if only a previous agent saw the
// plugin. A device that a pod holds stays until the pod is gone.
func TestALostResourceExpires(t *testing.T) {
	root := short(t)
	n := start(t, root)
	n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 2, NUMA: 2}).Stop()
	n.await(func() bool { return !n.Plugins()[gpu].Served })
	n.holds("u1", "gpu-1")
	n.stop()
	synctest.Test(t, func(t *testing.T) {
		changed := make(admissions, 1)
		next := New(Options{
			Dir: n.opts.Dir, State: n.opts.State, Ledger: n.ledger, Boot: "boot-1",
			Admission: changed, Statuses: n, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		if err := next.Load(); err != nil {
			t.Fatal(err)
		}
		one := device.Device{ID: "gpu-1", Nodes: topology.Of(1)}
		began := time.Now()
		check := func(want device.Inventory, after time.Duration) {
			t.Helper()
			if diff := cmp.Diff(want, next.Inventory()); diff != "" || time.Since(began) != after {
				t.Errorf("after %v (-want +got):\n%s", time.Since(began), diff)
			}
		}
		check(device.Inventory{gpu: {{ID: "gpu-0", Nodes: topology.Of(0)}, one}}, 0)
		<-changed
		check(device.Inventory{gpu: {one}}, supply.Grace)
		if err := n.ledger.Release("u1"); err != nil {
			t.Fatal(err)
		}
		<-changed
		check(device.Inventory{}, 2*supply.Grace)
	})
}

func TestAllocateOnce(t *testing.T) {
	root := short(t)
	n := start(t, root)
	p := n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 2, NUMA: 2})
	u1 := n.holds("u1", "gpu-1")
	if err := n.Step().Setup(t.Context(), &worker.Run{Pod: &pod.Pod{Pod: u1}}); err != nil {
		t.Fatal(err)
	}
	n.created(u1, given("gpu-1"))
	n.stop()

	// The next agent has the answer without asking the plugin.
	p.Stop()
	n = start(t, root)
	n.created(u1, given("gpu-1"))
	if diff := cmp.Diff([]string{"Allocate gpu-1"}, p.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if got := n.Nodes("u1", "app", gpu, "gpu-1"); got != topology.Of(1) {
		t.Errorf("nodes %v", got)
	}
	if diff := cmp.Diff(n.ledger.All(), n.records.Held(),
		cmp.Comparer(func(a, b cpuset.CPUSet) bool { return a.String() == b.String() })); diff != "" {
		t.Errorf("the ledger and the recorded devices differ:\n%s", diff)
	}

	// The teardown removes the answers.
	if err := n.Step().Teardown(t.Context(), &worker.Run{Pod: &pod.Pod{Pod: u1}}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(root, "devices", "pods"))
	if len(left) != 0 || len(n.records.Users()) != 0 || err != nil {
		t.Errorf("files, users and error after the teardown: %v %v %v", left, n.records.Users(), err)
	}
}

// A plugin loses its allocations at a reboot, so it must allocate again.
func TestAllocateAgainAfterAReboot(t *testing.T) {
	root := short(t)
	n := start(t, root)
	p := n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 1})
	u1 := n.holds("u1", "gpu-0")
	n.created(u1, given("gpu-0"))
	n.opts.Boot = "boot-2"
	n.created(u1, given("gpu-0"))
	if diff := cmp.Diff([]string{"Allocate gpu-0", "Allocate gpu-0"}, p.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestAPluginPrefersOthers(t *testing.T) {
	n := start(t, short(t))
	p := n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 6, NUMA: 2, Preferred: true})
	other := n.holds("u0", "gpu-4") // held by another pod
	u1 := n.holds("u1", "gpu-0")    // on node 0, where gpu-2 is free
	n.created(u1, given("gpu-2"))
	a, _ := n.ledger.Get("u1")
	if got := a.Containers["app"].Devices[gpu]; !slices.Equal(got, []device.ID{"gpu-2"}) {
		t.Errorf("the ledger has %v", got)
	}
	n.created(other, given("gpu-4"))
	want := []string{"GetPreferredAllocation gpu-0,gpu-2", "Allocate gpu-2", "GetPreferredAllocation gpu-0,gpu-4",
		"Allocate gpu-4"}
	if diff := cmp.Diff(want, p.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestRefusals(t *testing.T) {
	n := start(t, short(t))
	p := n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 1, PreStart: true})
	u1 := n.holds("u1", "gpu-0")
	p.Refuse("Allocate", true)
	_, err := n.create(t.Context(), u1)
	want := reason.New("UnexpectedAdmissionError",
		"Allocate failed due to rpc error: code = Unknown desc = the sample plugin was told to refuse, which "+
			"is unexpected")
	if fmt.Sprint(err) != want.Error() {
		t.Errorf("got  %v\nwant %v", err, want)
	}
	if diff := cmp.Diff([]string{"u1 " + want.Error()}, n.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	p.Refuse("Allocate", false)
	n.created(u1, given("gpu-0"))

	started := func() error { return n.PreStart(t.Context(), u1, pod.Containers(u1)[0], "id") }
	p.Refuse("PreStartContainer", true)
	want = reason.New("CreateContainerConfigError",
		"device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = the sample plugin was "+
			"told to refuse")
	if err := started(); fmt.Sprint(err) != want.Error() {
		t.Errorf("got  %v\nwant %v", err, want)
	}
	p.Refuse("PreStartContainer", false)
	if err := started(); err != nil {
		t.Error(err)
	}
	p.Stop()
	n.await(func() bool { return !n.Plugins()[gpu].Served })
	want = reason.New("CreateContainerConfigError",
		"device plugin PreStartContainer rpc failed with err: the device plugin of example.com/gpu is not registered")
	if err := started(); fmt.Sprint(err) != want.Error() {
		t.Errorf("got  %v\nwant %v", err, want)
	}
}

// A wait shows in the container's status, ends with the deletion of the pod and does not delay other pods.
func TestWaits(t *testing.T) {
	n := start(t, short(t))
	events := make(chan string, 100)
	mark := func(uid types.UID) {
		message, _ := n.Waiting(uid, "app")
		events <- message
	}
	n.marked.Store(&mark)
	first := n.holds("u1", "gpu-0")
	ctx, deleted := context.WithCancel(t.Context())
	outcome := make(chan error, 1)
	go func() { _, err := n.create(ctx, first); outcome <- err }()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("no status says %q", want)
		}
	}
	next("waiting for the device plugin of example.com/gpu to register")

	p, err := deviceplugin.Start(deviceplugin.Options{Dir: n.opts.Dir, Resource: string(gpu), Devices: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	if err := <-outcome; err != nil {
		t.Fatal(err)
	}

	p.Hang("Allocate", true)
	second := n.holds("u2", "gpu-1")
	go func() { _, err := n.create(ctx, second); outcome <- err }()
	if err := p.Await(t.Context(), "Allocate gpu-1"); err != nil {
		t.Fatal(err)
	}
	n.created(first, given("gpu-0")) // the call that hangs does not delay it
	deleted()
	if err := <-outcome; !errors.Is(err, context.Canceled) {
		t.Errorf("a deleted pod's start ended with %v", err)
	}
}

func TestALateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := limited(t.Context(), callLimit, gpu, "Allocate", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if want := "the device plugin of example.com/gpu has not answered Allocate within 2m0s"; fmt.Sprint(
			err) != want {
			t.Errorf("got  %v\nwant %v", err, want)
		}
	})
}

// An agent that takes over a node from a kubelet gives the containers the same devices.
func TestTakeOver(t *testing.T) {
	root := short(t)
	dir := filepath.Join(root, "device-plugins")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, kubelet.Name)
	content := recordtest.File(recordtest.Entry(t, "u1", "app", "example.com/gpu", `{"1":["g1"]}`))
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	n := start(t, root)
	want := device.Inventory{gpu: {{ID: "g0"}, {ID: "g1"}}}
	if diff := cmp.Diff(want, n.Inventory()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	config := &runtimeapi.ContainerConfig{
		Envs:    []*runtimeapi.KeyValue{{Key: "GPU", Value: []byte("1")}},
		Devices: []*runtimeapi.Device{{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu1", Permissions: "rw"}},
	}
	u1 := n.holds("u1", "g1")
	n.created(u1, config)
	n.stop()
	if err := os.Remove(file); err != nil { // it must not be needed again
		t.Fatal(err)
	}
	n = start(t, root)
	n.created(u1, config)
}

var noCPUs = cmpopts.IgnoreFields(resource.Holding{}, "CPUs")

// leftFor reads a checkpoint as a kubelet that takes over would: without the agent's own files. ours says that an agent
// wrote it.
func leftFor(t *testing.T, path string) (left *record.Records, resources record.Resources, ours bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, kubelet.Name), text, 0o600); err != nil {
		t.Fatal(err)
	}
	left = record.New(record.Options{Plugins: dir, State: filepath.Join(dir, "state"), Boot: "boot-1",
		Log: slog.New(slog.DiscardHandler)})
	if resources, err = left.Load(); err != nil {
		t.Error(err)
	}
	var file struct{ Writer string }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Error(err)
	}
	return left, resources, file.Writer == kubelet.Writer
}

func answersOf(r *record.Records) map[types.UID]record.Answers {
	all := map[types.UID]record.Answers{}
	for _, uid := range r.Users() {
		all[uid] = r.Answers(uid)
	}
	return all
}

// A kubelet that takes over finds the devices of all pods in the checkpoint. The next agent reads the checkpoint only
// if a kubelet has written it.
func TestThereAndBack(t *testing.T) {
	root := short(t)
	n := start(t, root)
	n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 3})
	n.created(n.holds("u1", "gpu-0"), given("gpu-0"))
	n.created(n.holds("u2", "gpu-1"), given("gpu-1"))
	if err := n.Step().Teardown(t.Context(), &worker.Run{Pod: &pod.Pod{Pod: web("u2")}}); err != nil {
		t.Fatal(err)
	}
	n.stop()
	path := filepath.Join(root, "device-plugins", kubelet.Name)
	left, resources, ours := leftFor(t, path)
	if diff := cmp.Diff(answersOf(n.records), answersOf(left)); diff != "" || !ours {
		t.Errorf("ours: %v (-want +got):\n%s", ours, diff)
	}
	if diff := cmp.Diff(record.Resources{gpu: {{ID: "gpu-0"}, {ID: "gpu-1"}, {ID: "gpu-2"}}}, resources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	n = start(t, root)
	if diff := cmp.Diff(resource.Held(nil), n.records.FromKubelet(), noCPUs); diff != "" {
		t.Errorf("devices from an agent's own file (-want +got):\n%s", diff)
	}
	n.stop()
	content := recordtest.File(recordtest.Entry(t, "u1", "app", "example.com/gpu", `{"-1":["gpu-0"]}`),
		recordtest.Entry(t, "u3", "app", "example.com/gpu", `{"-1":["gpu-1"]}`))
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	n = start(t, root)
	want := resource.Held{"u1": holding(map[string][]device.ID{"app": {"gpu-0"}}),
		"u3": holding(map[string][]device.ID{"app": {"gpu-1"}})}
	if diff := cmp.Diff(want, n.records.FromKubelet(), noCPUs) + cmp.Diff(want, n.records.Held(), noCPUs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n.created(web("u1"), given("gpu-0")) // as the plugin answered the agent, not as the kubelet's file says
}

// Admission and a plugin's preference never allocate the same device twice.
func TestPreferenceForWhatIsTakenMeanwhile(t *testing.T) {
	n := start(t, short(t))
	p := n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 2, Preferred: true})
	u1 := n.holds("u1", "gpu-0")
	p.Hang("GetPreferredAllocation", true)
	outcome := make(chan error, 1)
	go func() { _, err := n.create(t.Context(), u1); outcome <- err }()
	if err := p.Await(t.Context(), "GetPreferredAllocation gpu-0,gpu-1"); err != nil {
		t.Fatal(err)
	}
	n.WithoutExchanges(func() {
		p.Hang("GetPreferredAllocation", false)
		n.holds("u2", "gpu-1")
	})
	if err := <-outcome; err != nil {
		t.Fatal(err)
	}
	n.created(u1, given("gpu-0"))
}

// A container that requests devices and holds none fails with an error.
func TestAContainerWithoutItsDevices(t *testing.T) {
	n := start(t, short(t))
	n.plugin(deviceplugin.Options{Resource: string(gpu), Devices: 1})
	p := web("u1")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpu: apiresource.MustParse("1")}
	_, err := n.create(t.Context(), p)
	if want := "UnexpectedAdmissionError: the container requests example.com/gpu but holds none any more; next: " +
		"delete the pod and create it again"; fmt.Sprint(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// A pod without devices causes no allocation and no file.
func TestNothingToDo(t *testing.T) {
	n := start(t, short(t))
	p := web("u1")
	n.created(p, &runtimeapi.ContainerConfig{})
	step, run := n.Step(), &worker.Run{Pod: &pod.Pod{Pod: p}}
	got := testing.AllocsPerRun(100, func() {
		if err := step.Setup(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
	if _, err := os.Stat(n.opts.State); !os.IsNotExist(err) {
		t.Errorf("the state directory exists: %v", err)
	}
}
