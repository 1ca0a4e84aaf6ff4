package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// buildFaulty links the product with faults in guard.Point, once for all scripts.
var buildFaulty = sync.OnceValues(func() (string, error) {
	bin, err := filepath.Abs("../bin/berth-faults")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags",
		"-s -w -X github.com/berth-run/berth/internal/base/guard.faults=on", "-o", bin, "./cmd/berth")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("link with faults: %w\n%s", err, out)
	}
	return bin, nil
})

// faulty makes agents that start from now on run a binary that panics where the script's file "faults" says.
func (h *harness) faulty(ts *testscript.TestScript, _ []string) {
	bin, err := buildFaulty()
	ts.Check(err)
	ts.Value(daemonKey{}).(*daemon).faulty = bin
}
