package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
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
