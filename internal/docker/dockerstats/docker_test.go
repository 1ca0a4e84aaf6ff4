package dockerstats

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/test/image"
)

const imageName = "berth.test/workload:1"

// A container of a real dockerd uses 32 MB of memory and 4 MB of its layer.
func TestDocker(t *testing.T) {
	archive, err := image.Build(t.Context(), t.TempDir(), imageName)
	if err != nil {
		t.Fatal(err)
	}
	d := dockertest.Start(t, archive)
	parent := func(_ *container.Config, h *container.HostConfig) { h.CgroupParent = d.Cgroup() + "/pod1" }
	sandbox := d.Run(t, imageName, []string{"sleep"}, parent)
	id := d.Run(t, imageName, []string{"fill", "/file", "4000000", "then", "eat", "32000000", "then", "burn"}, parent)
	now := time.Now()
	c := Container{PID: d.PidOf(t, id), Started: now, Attributes: &runtimeapi.ContainerAttributes{Id: id}}
	s := New(Options{Filesystem: d.Root(), Proc: "/proc", Cgroups: "/sys/fs/cgroup", Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})
	defer looptest.Start(t, s.Run, nil)()
	var stats *runtimeapi.ContainerStats
	eventually.Nothing(t, func() string {
		if stats, err = s.Container(c); err != nil {
			t.Fatal(err)
		}
		if stats.WritableLayer != nil && stats.WritableLayer.UsedBytes.Value < 4_000_000 {
			s.layers.one(t.Context(), id) // the container was not ready
		}
		if stats.WritableLayer != nil && stats.WritableLayer.UsedBytes.Value >= 4_000_000 &&
			stats.Memory.WorkingSetBytes.Value >= 32_000_000 && stats.Cpu.UsageCoreNanoSeconds.Value > 0 {
			return ""
		}
		return fmt.Sprintf("stats %v", stats)
	})
	if w, u := stats.Memory.WorkingSetBytes.Value, stats.Memory.UsageBytes.Value; w > u || u > 64_000_000 {
		t.Errorf("working set %d, usage %d", w, u)
	}
	p := Sandbox{PID: d.PidOf(t, sandbox), Started: now, OwnCgroup: true, Containers: []Container{c},
		Attributes: &runtimeapi.PodSandboxAttributes{Id: sandbox, Metadata: &runtimeapi.PodSandboxMetadata{}}}
	for _, own := range []bool{true, false} {
		p.OwnCgroup = own
		pod, err := s.Sandbox(p)
		if err != nil {
			t.Fatal(err)
		}
		all, one := pod.Linux.Memory.WorkingSetBytes.Value, pod.Linux.Containers[0].Memory.WorkingSetBytes.Value
		if all < one || all > one+32_000_000 || pod.Linux.Process.ProcessCount.Value < 2 {
			t.Errorf("own cgroup %v: %v", own, pod.Linux)
		}
	}
	if m, err := s.Metrics(p); err != nil || len(m.ContainerMetrics) != 1 {
		t.Errorf("%v, %v", m, err)
	}
	if dir := UpperDir("/proc", c.PID); !strings.HasPrefix(dir, filepath.Dir(d.Root())+"/") {
		t.Errorf("the writable layer is in %s", dir)
	}
}

// BenchmarkList reports 100 containers, as one ListContainerStats does.
func BenchmarkList(b *testing.B) {
	archive, err := image.Build(b.Context(), b.TempDir(), imageName)
	if err != nil {
		b.Fatal(err)
	}
	d := dockertest.Start(b, archive)
	id := d.Run(b, imageName, []string{"sleep"}, nil)
	c := Container{PID: d.PidOf(b, id), UpperDir: "/", Attributes: &runtimeapi.ContainerAttributes{Id: id}}
	s := New(Options{Proc: "/proc", Cgroups: "/sys/fs/cgroup", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	defer s.readers.close()
	for b.Loop() {
		for range 100 {
			if _, err := s.Container(c); err != nil {
				b.Fatal(err)
			}
		}
	}
}
