package stats

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/roottest"
)

// A scrape of a full node with real cgroups: 110 pods of one container each, in empty cgroups that the benchmark
// creates.
func BenchmarkScrape(b *testing.B) {
	s := New(Options{Source: fullNode(b, 110), Dir: b.TempDir(), Host: "/", VolumePeriod: time.Minute, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})
	s.Root = group("")
	for name, g := range map[string]prometheus.Gatherer{"resource": Resource{s}, "cadvisor": Cadvisor{s}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				families, err := g.Gather()
				if err != nil {
					b.Fatal(err)
				}
				for _, f := range families {
					if _, err := expfmt.MetricFamilyToText(io.Discard, f); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// group returns a cgroup of this machine.
func group(name string) cgroupfile.Group {
	const root = "/sys/fs/cgroup"
	if unix.Access(root+"/cgroup.controllers", unix.F_OK) == nil {
		return cgroupfile.Group{Unified: true, Dirs: map[string]string{"": filepath.Join(root, name)}}
	}
	g := cgroupfile.Group{Dirs: map[string]string{}}
	for _, c := range []string{"cpu", "cpuacct", "memory", "pids", "blkio"} {
		g.Dirs[c] = filepath.Join(root, c, name)
	}
	return g
}

func fullNode(b *testing.B, pods int) fakeNode {
	b.Helper()
	roottest.Need(b, "making cgroups")
	made := func(name string) cgroupfile.Group {
		g := group(name)
		for _, dir := range g.Dirs {
			if err := os.Mkdir(dir, 0o755); err == nil {
				b.Cleanup(func() { _ = os.Remove(dir) })
			} else if !os.IsExist(err) { // controllers may share a directory
				b.Skip(err)
			}
		}
		return g
	}
	parent := fmt.Sprintf("stats-benchmark-%d", os.Getpid())
	made(parent)
	var n fakeNode
	for i := range pods {
		name := fmt.Sprintf("%s/pod%d", parent, i)
		p := Pod{Namespace: "default", Name: fmt.Sprintf("p%d", i), Group: made(name), Path: name}
		p.Containers = []Container{{Name: "app", ID: name, Image: "example.com/app:1", Group: made(name + "/app"),
			Path: name + "/app"}}
		n.pods = append(n.pods, p)
	}
	return n
}
