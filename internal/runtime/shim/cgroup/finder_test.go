package cgroup

import (
	"os"
	"testing"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

// The paths are those that the library finds, which reads the table of mounts for each controller.
func TestPathsAgreeWithTheLibrary(t *testing.T) {
	if cgroups.Mode() == cgroups.Unified {
		t.Skip("the machine has cgroup version 2, where the library finds the path")
	}
	want := map[string]string{}
	find := cgroup1.PidPath(os.Getpid())
	for _, name := range cgroup1.Subsystems() {
		if path, err := find(name); err == nil {
			want[string(name)] = path
		}
	}
	if len(want) == 0 {
		t.Fatal("the library finds no path")
	}
	var f Finder
	for range 2 {
		got, err := f.Paths(os.Getpid())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("paths of this process (-want +got): %v\n%s", err, diff)
		}
	}
}

func TestRootsOf(t *testing.T) {
	mounts := []*mountinfo.Info{
		{Root: "/", VFSOptions: "rw,name=systemd"}, {Root: "/docker/x", VFSOptions: "rw,cpu,cpuacct"},
		{Root: "/docker/x", VFSOptions: "rw,memory"}, {Root: "/later", VFSOptions: "rw,memory"},
	}
	want := map[string]string{"cpu": "/docker/x", "cpuacct": "/docker/x", "memory": "/docker/x"}
	got := rootsOf(mounts, []cgroup1.Name{cgroup1.Cpu, cgroup1.Cpuacct, cgroup1.Memory, cgroup1.Pids})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBelow(t *testing.T) {
	for _, test := range []struct{ root, path, want string }{
		{"/", "/kubepods/pod/c", "/kubepods/pod/c"}, {"/", "/", "/"},
		{"/docker/x", "/docker/x/kubepods/c", "/kubepods/c"}, {"/docker/x", "/docker/x", "/docker/x"},
	} {
		if got, err := below(test.root, test.path); err != nil || got != test.want {
			t.Errorf("%s below %s: %s (%v), want %s", test.path, test.root, got, err, test.want)
		}
	}
}
