package roottest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Need skips the test unless it runs as root. what names the reason in the present participle: "mounting".
func Need(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("%s needs root: run make test as root", what)
	}
}

// Dir makes a directory whose path is short enough for sockets, and skips the test unless it runs as root. At the
// test's end, it calls sweep and removes the directory. sweep reports what still uses the directory, and ends it.
func Dir(t testing.TB, what string, sweep func(dir string)) string {
	t.Helper()
	Need(t, what)
	dir, err := os.MkdirTemp("/tmp", "bt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sweep(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// OwnNetwork runs the test again in a process with its own network namespace, and returns true there. It skips the test
// unless it runs as root.
func OwnNetwork(t *testing.T) bool {
	t.Helper()
	Need(t, "making a network namespace")
	const inside = "BERTH_TEST_OWN_NETWORK"
	if os.Getenv(inside) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}
