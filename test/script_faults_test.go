package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// buildFaulty builds the product with the tag faults, once for all scripts. The tag only adds guard.Point.
var buildFaulty = sync.OnceValues(func() (string, error) {
	bin, err := filepath.Abs("../bin/berth-faults")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "faults", "-ldflags", "-s -w", "-o", bin, "./cmd/berth")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build with the tag faults: %w\n%s", err, out)
	}
	return bin, nil
})

// faulty makes agents that start from now on run a binary that panics where the script's file "faults" says.
func (h *harness) faulty(ts *testscript.TestScript, _ []string) {
	bin, err := buildFaulty()
	ts.Check(err)
	ts.Value(daemonKey{}).(*daemon).faulty = bin
}
