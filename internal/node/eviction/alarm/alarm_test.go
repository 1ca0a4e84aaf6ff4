package alarm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/node/eviction/facts"
)

// group is a cgroup that stands for the machine's and for the one of all pods.
type group struct{ cgroupfile.Group }

func (g group) Machine() (cgroupfile.Group, error) { return g.Group, nil }
func (g group) Pods() (cgroupfile.Group, error)    { return g.Group, nil }

// newGroup makes a memory cgroup of version 1.
func newGroup(t *testing.T) (g group, dir string) {
	t.Helper()
	roottest.Need(t, "making a cgroup")
	if cgroups.IsCgroup2UnifiedMode() {
		t.Skip("cgroup v2 has no thresholds")
	}
	dir = filepath.Join("/sys/fs/cgroup/memory", fmt.Sprintf("berth-alarm-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	return group{cgroupfile.Group{Dirs: map[string]string{"memory": dir}}}, dir
}

// The kernel notifies when the usage of a cgroup crosses the level, and again after the next Arm.
func TestTheKernelNotifies(t *testing.T) {
	groups, dir := newGroup(t)
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte("256M"), 0); err != nil {
		t.Fatal(err)
	}
	a, err := New(groups, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	const signal = eviction.AllocatableMemoryAvailable
	machine := facts.NewMachine(groups, 256<<20)
	for range 2 {
		seen, err := machine.Observe(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if o := seen[signal]; o.Capacity != 256<<20 || o.Available > o.Capacity {
			t.Fatalf("observed %+v", o)
		}
		a.Arm(signal, seen[signal], 220<<20)
		if !a.Covers(signal) {
			t.Fatal("the kernel has no threshold")
		}
		select {
		case <-a.C():
			t.Error("notified without a cause")
		default:
		}
		// tail keeps a line without an end in memory.
		eat := exec.Command("sh", "-c", "echo $$ >"+dir+"/cgroup.procs; "+
			"head -c 60000000 /dev/zero | tail -n 1 >/dev/null")
		if out, err := eat.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		select {
		case <-a.C():
		case <-time.After(30 * time.Second):
			t.Fatal("no notification")
		}
		if a.Covers(signal) {
			t.Error("the threshold outlives its notification")
		}
		select { // it crosses the level twice
		case <-a.C():
		default:
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	a.Arm(signal, eviction.Observation{}, 0) // it opens nothing any more
	if a.Covers(signal) {
		t.Error("armed after the end")
	}
}

// A cgroup without a limit, or that is gone, gives no observation of the pods' memory.
func TestNoLimitNoSignal(t *testing.T) {
	groups, dir := newGroup(t)
	machine := facts.NewMachine(groups, 1<<30)
	seen, err := machine.Observe(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := seen[eviction.AllocatableMemoryAvailable]; ok || seen[eviction.MemoryAvailable].Capacity != 1<<30 {
		t.Errorf("observed %+v", seen)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if seen, err = machine.Observe(time.Now()); err == nil || len(seen) != 1 { // processes
		t.Errorf("observed %+v, error %v", seen, err)
	}
}

// On cgroup v2 the kernel notifies when a cgroup exceeds memory.high or its limit. It has no notification for other
// amounts.
func TestTheKernelNotifiesOnUnified(t *testing.T) {
	roottest.Need(t, "making a cgroup")
	if !cgroups.IsCgroup2UnifiedMode() {
		t.Skip("cgroup v1 has thresholds: TestTheKernelNotifies")
	}
	dir := filepath.Join("/sys/fs/cgroup", fmt.Sprintf("berth-alarm-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually.Nothing(t, func() string { // killed processes leave it a moment later
			if err := os.Remove(dir); err != nil {
				return err.Error()
			}
			return ""
		})
	})
	if _, err := os.Stat(filepath.Join(dir, "memory.high")); err != nil {
		t.Skip("the root cgroup does not let cgroups limit their memory")
	}
	a, err := New(group{cgroupfile.Group{Unified: true, Dirs: map[string]string{"": dir}}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	const signal = eviction.AllocatableMemoryAvailable
	for _, file := range []string{"memory.high", "memory.max"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("32M"), 0); err != nil {
			t.Fatal(err)
		}
		a.Arm(signal, eviction.Observation{}, 0)
		if a.Covers(signal) {
			t.Error("the kernel notifies of every crossing")
		}
		eat := exec.CommandContext(ctx, "sh", "-c", "echo $$ >"+dir+"/cgroup.procs; "+
			"head -c 60000000 /dev/zero | tail -n 1 >/dev/null")
		if err := eat.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-a.C():
		case <-time.After(time.Minute):
			t.Errorf("no notification by %s", file)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
			t.Error(err)
		}
		_ = eat.Wait() // the error says that it was killed
		if err := os.WriteFile(filepath.Join(dir, file), []byte("max"), 0); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
