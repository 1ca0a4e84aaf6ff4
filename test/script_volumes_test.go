package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-run/berth/internal/base/roottest"
)

// loop makes a block device from a file and sets the variable of this name to its path. If the device is in use when
// the script ends, the kernel removes it after its last use.
func loop(ts *testscript.TestScript, args []string) {
	file := filepath.Join(rootOf(ts), args[0]+".img")
	ts.Check(os.WriteFile(file, nil, 0o600))
	ts.Check(os.Truncate(file, 16<<20))
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	ts.Check(err)
	device := strings.TrimSpace(string(out))
	ts.Defer(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	ts.Setenv(args[0], device)
}

// hang mounts a file system on a directory that never answers: its server does not read requests.
func hang(ts *testscript.TestScript, args []string) {
	dirs, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(dirs) != 1 {
		ts.Fatalf("hang: %d directories match %s", len(dirs), args[0])
	}
	release, err := roottest.Hang(dirs[0])
	ts.Check(err)
	ts.Defer(func() { ts.Check(release()) })
}
