package headstart

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/base/roottest"
)

func TestOwnFindsAHierarchyThatIsMounted(t *testing.T) {
	for name, test := range map[string]struct{ list, file string }{
		"v2":                {"0::/system.slice/berth.service\n", "system.slice/berth.service"},
		"v1":                {"9:name=systemd:/init\n4:memory:/a\n", "memory/a"},
		"v1, named":         {"9:name=systemd:/init\n4:memory:/a\n", "systemd/init"},
		"v1, more than one": {"2:cpu,cpuacct:/\n", "cpu,cpuacct"},
	} {
		dir := t.TempDir()
		list := filepath.Join(dir, "list")
		want := filepath.Join(dir, test.file, "cgroup.procs")
		if err := os.WriteFile(list, []byte(test.list), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := own(list, dir); err == nil {
			t.Errorf("%s: no error without a mounted hierarchy", name)
		}
		if err := os.MkdirAll(filepath.Dir(want), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(want, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := own(list, dir); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}

// On the machine's own kernel: Run writes, changes nothing, and ends with its context.
func TestRunLeavesTheProcessWhereItIs(t *testing.T) {
	roottest.Dir(t, "moving processes between cgroups", func(string) {})
	before, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	h := New()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	h.Expect()
	file, err := own("/proc/self/cgroup", "/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		begin := time.Now()
		if err := touch(file); err != nil {
			t.Fatal(err)
		}
		t.Logf("a move took %s", time.Since(begin)) // only the first one waits
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	after, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || string(after) != string(before) {
		t.Errorf("cgroups after: %s, %v, before: %s", after, err, before)
	}
}
