package critest_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest"
	"github.com/berth-run/berth/test/containerd"
)

// TestContainerd runs the machine's own containerd on temporary directories.
func TestContainerd(t *testing.T) {
	if _, err := exec.LookPath("containerd"); err != nil {
		t.Skip("containerd is not installed")
	}
	critest.Suite(t, func(t *testing.T) critest.Env {
		dir := scratch(t)
		cgroup := cgroupParent(t)
		parts, err := containerd.Build(t.Context(), dir, "../../../tools", buildImage(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		daemon, err := containerd.New(t.Context(), containerd.Options{
			Parts: parts, Dir: filepath.Join(dir, "c"), Bridge: "critest1", Subnet: "10.204.0.0/24",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := daemon.Close(); err != nil {
				t.Error(err)
			}
		})
		client, err := cri.New(daemon.Endpoint(), cri.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
		return critest.Env{Client: client, Image: workload, Logs: filepath.Join(dir, "logs"), CgroupParent: cgroup,
			Processes: true, StartTask: daemon.StartTask}
	})
}
