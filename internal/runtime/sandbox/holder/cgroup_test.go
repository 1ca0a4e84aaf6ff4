package holder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hierarchies returns a new directory in each cgroup hierarchy of a machine that has one of them at a known place.
func hierarchies(t *testing.T) (dirs []string) {
	t.Helper()
	name := fmt.Sprintf("berth-test-holder-%d", os.Getpid())
	for mount, file := range map[string]string{
		"pids": "tasks", "memory": "tasks", "unified": "cgroup.procs", "": "cgroup.controllers",
	} {
		top := filepath.Join("/sys/fs/cgroup", mount)
		if _, err := os.Stat(filepath.Join(top, file)); err != nil {
			continue
		}
		dir := filepath.Join(top, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
	}
	if len(dirs) == 0 {
		t.Fatal("the machine has no cgroups")
	}
	return dirs
}

// A holder starts in its cgroup in each hierarchy, also where the kernel makes no process in another cgroup. The
// program that starts it has left the cgroup by then.
func TestHolderStartsInItsCgroup(t *testing.T) {
	s := starter(t)
	for _, into := range []bool{true, false} {
		t.Run(fmt.Sprintf("into %t", into), func(t *testing.T) {
			s.into = into && s.into
			dirs := hierarchies(t)
			c := Config{ID: "test", Namespaces: Namespaces{IPC: true, UTS: true, PID: true},
				Cgroups: append(dirs, dirs...)}
			p := run(t, s, c)
			for _, dir := range dirs {
				list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
				if err != nil || strings.TrimSpace(string(list)) != fmt.Sprint(p.PID) {
					t.Errorf("processes in %s: %q (%v), want %d", dir, list, err, p.PID)
				}
			}
		})
	}
}

// A cgroup that does not exist or takes no process is an error that names it, and leaves no holder.
func TestHolderReportsItsCgroup(t *testing.T) {
	s := starter(t)
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := s.Start(Config{ID: "test", Cgroups: []string{missing}}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), missing) {
		t.Errorf("start in %s: %v, want %v", missing, err, fs.ErrNotExist)
	}
	// A file system that refuses the write stands for a cgroup that does.
	full := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(full, "tasks")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(Config{ID: "test", Cgroups: []string{full}}); err == nil ||
		!strings.Contains(err.Error(), "join "+full) {
		t.Errorf("start in a full cgroup: %v", err)
	}
}
