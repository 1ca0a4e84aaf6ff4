package stats

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/roottest"
)

// A MemoryMeter reads a cgroup that was removed and made again, and one that appears after the first read.
func TestMemoryMeterFollowsItsCgroup(t *testing.T) {
	roottest.Need(t, "making a cgroup")
	g := cgroupfile.Group{Unified: cgroups.IsCgroup2UnifiedMode(), Dirs: map[string]string{}}
	name := fmt.Sprintf("berth-meter-%d", os.Getpid())
	dir, controller := filepath.Join("/sys/fs/cgroup", name), ""
	if !g.Unified {
		dir, controller = filepath.Join("/sys/fs/cgroup/memory", name), "memory"
	}
	g.Dirs[controller] = dir
	found := 0
	meter := NewMemoryMeter(func() (cgroupfile.Group, error) { found++; return g, nil })
	for range 2 {
		if m, err := meter.Read(); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("read %+v of a missing cgroup, error %v", m, err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // it is gone unless the test has failed
		end := occupy(t, dir)
		found = 0
		for range 2 {
			if m, err := meter.Read(); err != nil || m.Usage == 0 {
				t.Errorf("read %+v, error %v", m, err)
			}
		}
		if found != 1 {
			t.Errorf("searched the cgroup %d times for two reads", found)
		}
		end()
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// occupy starts a process in a cgroup, and returns when it is there. The function ends it.
func occupy(t *testing.T, dir string) (end func()) {
	t.Helper()
	shell := exec.Command("sh", "-c", "echo $$ >"+dir+"/cgroup.procs && echo there && read line")
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = in.Close()
		_ = shell.Wait() // read fails at the end of its input
	})
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("move a process into a cgroup: %q, %v", line, err)
	}
	return end
}
