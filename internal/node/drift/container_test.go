package drift

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/model/pod"
)

// hanging is a runtime that never ends an update. It reports a container's weight unless it is silent.
type hanging struct {
	updates chan *runtimeapi.LinuxContainerResources
	silent  bool
}

func (h hanging) ContainerStatus(ctx context.Context, _ *runtimeapi.ContainerStatusRequest,
	_ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	if h.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &runtimeapi.ContainerStatusResponse{
		Info: map[string]string{"info": `{"runtimeSpec": {"linux": {"resources": {"cpu": {"shares": 1024}}}}}`}}, nil
}

func (h hanging) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest,
	_ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	select {
	case h.updates <- r.GetLinux():
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// contained returns a container in a cgroup, with a runtime that hangs.
func contained(w *Watch, g cgroupfile.Group, silent bool) (*container, chan *runtimeapi.LinuxContainerResources) {
	runtime := hanging{make(chan *runtimeapi.LinuxContainerResources), silent}
	s := NewContainers(ContainerOptions{
		Watch: w, Runtime: runtime, Places: anywhere{},
	})
	return &container{s: s, pod: &corev1.Pod{}, id: "1", name: "app", group: g}, runtime.updates
}

// anywhere are places without restrictions.
type anywhere struct{}

func (anywhere) Place(*corev1.Pod, string) (cpus, mems string) { return "", "" }

// A second change is repaired, counted and reported while the runtime still works on the first update.
func TestRepairDoesNotWaitForTheRuntime(t *testing.T) {
	events, g := make(recorder, 1), filesOf(t, "cri-containerd-1.scope")
	w := running(t, events)
	x, updates := contained(w, g, false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- x.s.updateRuntime(ctx) }()
	w.Watch(key(x.id), x.s.subject(x.pod, pod.ContainerStatus{ID: x.id, Name: x.name}, g))
	for i, weight := range []string{"7", "8"} {
		put(t, g, weight)
		want := "CgroupRepaired: The container's cgroup was changed from outside and is repaired: cpu.weight is " +
			weight + ", not 100"
		if diff := cmp.Diff(want, await(t, events)); diff != "" {
			t.Error(diff)
		}
		if i == 0 {
			if got, want := <-updates,
				(&runtimeapi.LinuxContainerResources{CpuShares: 1024}); got.String() != want.String() {
				t.Errorf("the runtime got the update %v, want %v", got, want)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Less than a second passes between the write and the repair, whatever the runtime does. The clock is synthetic and
// counts only waiting.
func TestRepairWithinASecond(t *testing.T) {
	g := files(t)
	synctest.Test(t, func(t *testing.T) {
		events := make(recorder, 1)
		w, err := New(Options{Events: events, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.loop(ctx) }()
		x, _ := contained(w, g, true)
		x.s.bounds[x.id] = cgroupfile.Bounds{Shares: 1024}
		w.Watch(key(x.id), x.s.subject(x.pod, pod.ContainerStatus{ID: x.id, Name: x.name}, g))
		put(t, g, "7")
		began := time.Now()
		w.mu.Lock()
		w.mark(key(x.id))
		w.mu.Unlock()
		<-events
		if took := time.Since(began); took >= time.Second {
			t.Errorf("the repair took %v", took)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Only systemd needs an update through the runtime: without it, the files are all. A container that has ended is not
// updated, and an update that hangs times out.
func TestUpdateOnlyForSystemdUnits(t *testing.T) {
	w := &Watch{opts: Options{Log: slog.New(slog.DiscardHandler)}}
	found := []cgroupfile.Change{{File: "cpu.weight", Have: "7", Want: "100"}}
	for name, want := range map[string]int{"1": 0, "cri-containerd-1.scope": 1} {
		x, _ := contained(w, filesOf(t, name), false)
		if err := x.repair(t.Context(), found); err != nil {
			t.Error(err)
		}
		if got := len(x.s.repaired); got != want {
			t.Errorf("%s: %d updates are queued, want %d", name, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		x, _ := contained(w, cgroupfile.Group{}, false)
		if err := x.update(t.Context(), found); err != nil {
			t.Errorf("a container that has ended: %v", err)
		}
		x.s.bounds[x.id] = cgroupfile.Bounds{Shares: 1024}
		if err := x.update(t.Context(), found); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want a timeout", err)
		}
	})
}

func TestIsUnit(t *testing.T) {
	for dir, want := range map[string]bool{"/a/kubepods.slice/b.slice/cri-containerd-1.scope": true,
		"/a/kubepods/b/1": false} {
		if got := isUnit(cgroupfile.Group{Dirs: map[string]string{"cpu": dir}}); got != want {
			t.Errorf("%s: got %v, want %v", dir, got, want)
		}
	}
}
