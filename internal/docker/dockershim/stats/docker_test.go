package stats

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/identity"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/test/image"
)

const imageName = "berth.test/workload:1"

// ignored observes nothing.
type ignored struct{}

func (ignored) Changed(context.Context, *index.Record, *index.Record) {}
func (ignored) Listed(context.Context, bool)                          {}

// root is the directory with the layers of an Engine.
type root string

func (r root) Store(context.Context) (string, error) { return string(r), nil }

// rig is a dockerd with a pod. One of its containers runs, and one has ended.
type rig struct {
	*Service
	sandbox, running, ended string
}

func newRig(t *testing.T) rig {
	t.Helper()
	archive, err := image.Build(t.Context(), t.TempDir(), imageName)
	if err != nil {
		t.Fatal(err)
	}
	d := dockertest.Start(t, archive)
	pod := &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "uid1"}
	run := func(name string, labels map[string]string, cmd ...string) string {
		created, err := d.Client().ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: name,
			Config: &container.Config{Image: imageName, Cmd: cmd, Labels: labels},
			HostConfig: &container.HostConfig{NetworkMode: "none",
				Resources: container.Resources{CgroupParent: d.Cgroup() + "/pod1"}}})
		if err == nil {
			_, err = d.Client().ContainerStart(t.Context(), created.ID, client.ContainerStartOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return created.ID
	}
	var r rig
	r.sandbox = run(identity.SandboxName(pod), identity.SandboxLabels(map[string]string{"app": "web"}, nil, "1"),
		"sleep")
	of := func(name string) (string, map[string]string) {
		return identity.ContainerName(pod, &runtimeapi.ContainerMetadata{Name: name}), identity.ContainerLabels(
			identity.Identity{SandboxID: r.sandbox, Spec: "1", Labels: map[string]string{"container": name}})
	}
	name, labels := of("app")
	r.running = run(name, labels, "fill", "/file", "1000000", "then", "print", "ready", "then", "sleep")
	name, labels = of("init")
	r.ended = run(name, labels, "true")
	d.Wait(t, r.ended)
	engine, err := docker.New(docker.Scheme + d.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	x := index.New(engine, ignored{}, slog.New(slog.DiscardHandler))
	r.Service = New(x, root(d.Root()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- x.Run(ctx) }()
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := x.AwaitSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDocker(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	eventually.True(t, "the layer is measured", func() bool {
		got, err := r.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: r.running})
		if err != nil {
			t.Fatal(err)
		}
		s := got.Stats
		if s.Memory.WorkingSetBytes.Value == 0 || s.Attributes.Metadata.Name != "app" || s.Attributes.Id != r.running {
			t.Fatalf("stats %v", s)
		}
		if s.WritableLayer != nil {
			if s.WritableLayer.FsId.Mountpoint == "" {
				t.Errorf("layer %v", s.WritableLayer)
			}
			return true
		}
		return false
	})
	for name, f := range map[string]*runtimeapi.ContainerStatsFilter{
		"all": nil, "of the pod": {PodSandboxId: r.sandbox},
		"by label": {LabelSelector: map[string]string{"container": "app"}},
	} {
		list, err := r.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: f})
		if err != nil || len(list.Stats) != 1 || list.Stats[0].Attributes.Id != r.running {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
	list, err := r.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{"container": "none"}}})
	if err != nil || len(list.Stats) > 0 {
		t.Errorf("without a match: %v, %v", list, err)
	}
	if got, err := r.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: r.ended}); err != nil ||
		got.Stats.Cpu != nil {
		t.Errorf("a container that has ended: %v, %v", got, err)
	}
	if _, err := r.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: "none"}); status.Code(
		err) != codes.NotFound {
		t.Errorf("a container that does not exist: %v", err)
	}
	testPods(t, r)
}

func testPods(t *testing.T, r rig) {
	ctx := t.Context()
	pods, err := r.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{
		Filter: &runtimeapi.PodSandboxStatsFilter{LabelSelector: map[string]string{"app": "web"}}})
	if err != nil || len(pods.Stats) != 1 {
		t.Fatalf("%v, %v", pods, err)
	}
	one, err := r.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: r.sandbox})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*runtimeapi.PodSandboxStats{pods.Stats[0], one.Stats} {
		if p.Attributes.Metadata.Name != "web" || len(p.Linux.Containers) != 1 ||
			p.Linux.Memory.WorkingSetBytes.Value < p.Linux.Containers[0].Memory.WorkingSetBytes.Value {
			t.Errorf("pod %v", p)
		}
	}
	if _, err := r.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: "none"}); status.Code(
		err) != codes.NotFound {
		t.Errorf("a pod that does not exist: %v", err)
	}
	descriptors, err := r.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := r.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil || len(metrics.PodMetrics) != 1 || len(metrics.PodMetrics[0].ContainerMetrics) != 1 {
		t.Fatalf("%v, %v", metrics, err)
	}
	for _, m := range metrics.PodMetrics[0].ContainerMetrics[0].Metrics {
		if !slices.ContainsFunc(descriptors.Descriptors, func(d *runtimeapi.MetricDescriptor) bool {
			return d.Name == m.Name && len(d.LabelKeys) == len(m.LabelValues)
		}) {
			t.Errorf("%s has no descriptor", m.Name)
		}
	}
}
