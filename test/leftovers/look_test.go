package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

// Each thing is found on a real machine: a rule, a device, a mount and a process.
func TestLookFindsWhatIsLeft(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	before, err := look()
	if err != nil {
		t.Fatal(err)
	}
	point := t.TempDir()
	if err := unix.Mount("none", point, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	script := "nft add table ip berth_test; ip link add berth-left type bridge"
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(point, "berth")
	if out, err := exec.CommandContext(t.Context(), "cp", sleep, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	left := exec.CommandContext(t.Context(), program, "600")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = left.Process.Kill()
		_ = left.Wait()
	})
	now, err := look()
	if err != nil {
		t.Fatal(err)
	}
	got := since(before, now)
	for _, want := range []string{
		"rule table ip berth_test", "network device berth-left", "mount " + point,
		fmt.Sprintf("process %d %s 600", left.Process.Pid, program),
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}
