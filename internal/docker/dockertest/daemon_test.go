package dockertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/test/image"
)

const imageName = "berth.test/workload:1"

// A container runs on while its dockerd does not. Close leaves no process, mount, cgroup or file.
func TestContainersOutliveTheirDaemon(t *testing.T) {
	roottest.Need(t, "running dockerd")
	archive, err := image.Build(t.Context(), t.TempDir(), imageName)
	if err != nil {
		t.Fatal(err)
	}
	d := Start(t, archive)
	version, err := d.Client().ServerVersion(t.Context(), client.ServerVersionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Docker Engine %s, API %s", version.Version, version.APIVersion)
	id := d.Run(t, imageName, []string{"sleep"}, nil)
	pid := d.PidOf(t, id)
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := d.Stop(signal); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, 0); err != nil {
			t.Fatalf("after %v of dockerd: %v", signal, err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := d.PidOf(t, id); got != pid {
			t.Errorf("process %d, want %d", got, pid)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if left := leftIn(d); left != "" {
		t.Errorf("left: %s", left)
	}
}

// leftIn names a file, mount, cgroup or process that a closed daemon has left, "" if there is none.
func leftIn(d *Daemon) string {
	if _, err := os.Stat(d.opts.Dir); err == nil {
		return d.opts.Dir
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, d.opts.Dir+"/") {
			return line
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		if dirs, _ := filepath.Glob(pattern + d.Cgroup()); len(dirs) > 0 {
			return dirs[0]
		}
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		if command, _ := os.ReadFile(path); strings.Contains(string(command), d.opts.Dir+"/") {
			return strings.ReplaceAll(string(command), "\x00", " ")
		}
	}
	return ""
}
