package create

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/mod/modfile"
	"golang.org/x/sys/unix"
)

// What needs more of runc than its library is left to runc.
func TestCan(t *testing.T) {
	for config, want := range map[string]bool{
		`{"process":{"args":["a"]}}`:                                   true,
		`{"process":{},"linux":{"seccomp":{}}}`:                        true,
		`{"process":{"terminal":true}}`:                                false,
		`{"process":{},"hooks":{}}`:                                    false,
		`{"process":{},"linux":{"intelRdt":{}}}`:                       false,
		`{"process":{},"linux":{"seccomp":{"listenerPath":"/run/a"}}}`: false,
		`{}`: false,
	} {
		var spec specs.Spec
		if err := json.Unmarshal([]byte(config), &spec); err != nil {
			t.Fatal(err)
		}
		if got := Can(&spec); got != (want && enters) {
			t.Errorf("%s: %v, want %v", config, got, want)
		}
	}
}

// The bundle is the one of the container, wherever this process works, and its name has no links.
func TestConfigNamesTheBundle(t *testing.T) {
	spec := &specs.Spec{
		Root: &specs.Root{Path: "rootfs"}, Annotations: map[string]string{"a": "b"}, Linux: &specs.Linux{},
	}
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	config, err := configOf(Container{ID: "c", Bundle: link}, spec)
	if err != nil {
		t.Fatal(err)
	}
	if config.Rootfs != filepath.Join(dir, "rootfs") {
		t.Errorf("root file system %s, bundle %s", config.Rootfs, dir)
	}
	if want := []string{"a=b", "bundle=" + dir}; !slices.Equal(config.Labels, want) {
		t.Errorf("labels %v, want %v", config.Labels, want)
	}
	if spec.Root.Path != "rootfs" {
		t.Errorf("the specification has changed: %s", spec.Root.Path)
	}
}

// What runc refuses is refused.
func TestProcessIsRefused(t *testing.T) {
	for want, process := range map[string]specs.Process{
		"the working directory must be an absolute path": {Args: []string{"a"}, Cwd: "tmp"},
		"args must not be empty":                         {Cwd: "/"},
		"wrong rlimit value: RLIMIT_ALL": {
			Args: []string{"a"}, Cwd: "/", Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_ALL"}},
		},
	} {
		if _, err := processOf(Container{}, &process); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The names of limits are at the kernel's numbers.
func TestLimits(t *testing.T) {
	for name, number := range map[string]int{
		"RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS,
		"RLIMIT_RTTIME": unix.RLIMIT_RTTIME, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_AS": unix.RLIMIT_AS,
		"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE,
	} {
		if limits[number] != name {
			t.Errorf("%s has the number %d, and %s is there", name, number, limits[number])
		}
	}
	if len(limits) != unix.RLIMIT_RTTIME+1 {
		t.Errorf("%d limits", len(limits))
	}
}

// The library and the runc beside the shim have the same version: they share the state of containers.
func TestVersionOfRunc(t *testing.T) {
	var versions []string
	for _, file := range []string{"go.mod", "tools/go.mod"} {
		path := filepath.Join("../../../..", file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		module, err := modfile.Parse(path, content, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range module.Require {
			if strings.HasSuffix(r.Mod.Path, "/opencontainers/runc") {
				versions = append(versions, r.Mod.Version)
			}
		}
	}
	if len(versions) != 2 || versions[0] != versions[1] {
		t.Errorf("versions of runc in go.mod and in tools/go.mod: %v", versions)
	}
}

// The variable for the first processes of containers is set only if nobody has set another.
func TestFrugal(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	if variable, unset := Frugal(); variable != "" {
		t.Errorf("set %s", variable)
	} else if unset(); os.Getenv("GOMAXPROCS") != "3" {
		t.Error("another value was unset")
	}
	_ = os.Unsetenv("GOMAXPROCS")
	variable, unset := Frugal()
	if variable != "GOMAXPROCS=1" || os.Getenv("GOMAXPROCS") != "1" {
		t.Errorf("set %s", variable)
	}
	unset()
	if _, set := os.LookupEnv("GOMAXPROCS"); set {
		t.Error("it is still set")
	}
}
