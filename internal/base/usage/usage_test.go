package usage

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	cgroupv1 "github.com/opencontainers/cgroups/fs"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/roottest"
)

// cgroup makes an empty cgroup of version 1 with a memory limit. It skips the test where the machine has none.
func cgroup(t testing.TB) cgroupfile.Group {
	t.Helper()
	roottest.Need(t, "making a cgroup")
	if cgroups.IsCgroup2UnifiedMode() {
		t.Skip("the machine has cgroup version 2, whose files the library reads")
	}
	g := cgroupfile.Group{Dirs: map[string]string{}}
	for _, c := range []string{"cpu", "cpuacct", "memory", "pids"} {
		g.Dirs[c] = filepath.Join("/sys/fs/cgroup", c, "berth-test-usage-"+strconv.Itoa(os.Getpid()))
		if err := os.MkdirAll(g.Dirs[c], 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(g.Dirs[c]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
	limit := filepath.Join(g.Dirs["memory"], "memory.limit_in_bytes")
	if err := os.WriteFile(limit, []byte("67108864"), 0); err != nil {
		t.Fatal(err)
	}
	return g
}

// The few files that are read on version 1 say what the library reads from all of them.
func TestReadBriefAgreesWithTheLibrary(t *testing.T) {
	g := cgroup(t)
	got, err := Read(g, Brief|cgroups.Pids, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := cgroupv1.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, g.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.Stats(&cgroups.StatsOptions{Controllers: Brief | cgroups.Pids})
	if err != nil {
		t.Fatal(err)
	}
	type values struct {
		cpu, used, limit, swap, processes uint64
		statistics                        []string
	}
	of := func(s *cgroups.Stats) values {
		return values{s.CpuStats.CpuUsage.TotalUsage, s.MemoryStats.Usage.Usage, s.MemoryStats.Usage.Limit,
			s.MemoryStats.SwapUsage.Limit, s.PidsStats.Current, slices.Sorted(maps.Keys(s.MemoryStats.Stats))}
	}
	if d := cmp.Diff(of(want), of(got.Stats), cmp.AllowUnexported(values{})); d != "" {
		t.Errorf("(-library +got):\n%s", d)
	}
	if got.MemoryStats.Usage.Limit != 64<<20 || len(got.MemoryStats.Stats) < 10 {
		t.Errorf("limit %d, statistics %v", got.MemoryStats.Usage.Limit, got.MemoryStats.Stats)
	}
}

// A cgroup that is gone is fs.ErrNotExist, so that its caller leaves it out.
func TestReadOfARemovedCgroup(t *testing.T) {
	g := cgroup(t)
	open, err := Open(g, Brief)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, dir := range g.Dirs {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open.Read(time.Time{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with open files: %v", err)
	}
	for _, what := range []cgroups.Controller{Brief, Full} {
		if _, err := Read(g, what, time.Time{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("controllers %d: %v", what, err)
		}
	}
}

// BenchmarkRead reads one cgroup with the library, with the few files once, and with a Reader again and again.
func BenchmarkRead(b *testing.B) {
	g := cgroup(b)
	b.Run("library", func(b *testing.B) {
		m, err := cgroupv1.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, g.Dirs)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := m.Stats(&cgroups.StatsOptions{Controllers: Brief}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("once", func(b *testing.B) {
		for b.Loop() {
			if _, err := Read(g, Brief, time.Time{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		r, err := Open(g, Brief)
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		for b.Loop() {
			if _, err := r.Read(time.Time{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
