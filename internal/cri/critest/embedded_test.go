package critest_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest"
	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/test/image"
)

const workload = "berth.test/workload:1"

func TestEmbedded(t *testing.T) {
	critest.Suite(t, func(t *testing.T) critest.Env {
		dir := scratch(t)
		cgroup := cgroupParent(t)
		r := runtime.New(runtime.Config{
			Root:       filepath.Join(dir, "root"),
			State:      filepath.Join(dir, "state"),
			CNIConfDir: filepath.Join(dir, "no-cni"),
			Bridge:     "critest0",
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.203.0.0/24"),
				netip.MustParsePrefix("fd62:6572:7468:203::/64")},
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			// This process goes on to listen on the socket for NRI plugins, so that Sweep keeps the directory.
			if err := errors.Join(<-ended, r.RemoveNetwork(context.Background()),
				unixsocket.RemoveDir(context.Background(), filepath.Join(dir, "root"))); err != nil {
				t.Error(err)
			}
		})
		conn, err := r.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client, err := cri.NewFromConn("embedded", conn, cri.Options{})
		if err != nil {
			t.Fatal(err)
		}
		archive, err := os.Open(buildImage(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		if _, err := r.Import(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
		return critest.Env{
			Client: client, Image: workload, Logs: filepath.Join(dir, "logs"),
			CgroupParent: cgroup, Processes: true, ExecGroups: true, HostPorts: true, Events: true,
		}
	})
}

func buildImage(t *testing.T, dir string) (archive string) {
	t.Helper()
	archive, err := image.Build(t.Context(), dir, workload)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// scratch makes a directory whose path is short enough for sockets. The test fails if pods of a runtime in it have left
// processes or mounts at the test's end.
func scratch(t *testing.T) string {
	t.Helper()
	t.Cleanup(func() { // the directory is gone by then, and so its sockets may go
		if err := unixsocket.Sweep(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return roottest.Dir(t, "running containers", func(dir string) { sweep(t, dir) })
}

// cgroupParent names the cgroup of the test's pods. Runtimes create it and do not remove it, so the test removes it at
// its end.
func cgroupParent(t *testing.T) string {
	t.Helper()
	parent := "/critest-" + strconv.Itoa(os.Getpid()) + "-" + t.Name()
	t.Cleanup(func() {
		v1, _ := filepath.Glob("/sys/fs/cgroup/*" + parent)
		for _, dir := range append(v1, "/sys/fs/cgroup"+parent) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	return parent
}

// sweep fails the test for everything that it has left, and removes it: mounts below dir, and processes whose program
// or arguments are below dir.
func sweep(t *testing.T, dir string) {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		exe, _ := os.Readlink(filepath.Join(filepath.Dir(file), "exe"))
		if !strings.Contains(string(line), dir+"/") && !strings.HasPrefix(exe, dir+"/") {
			continue
		}
		t.Errorf("process %s was left running: %q", file, line)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, dir+"/") {
			t.Errorf("mount %s was left", at)
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}
}
