package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/docker/dockertest"
)

// onDocker is the name of the runtime that is a Docker Engine.
const onDocker = "docker"

// dockerScripts are the scripts of test/script that run on Docker too. docs/docker.md says why others do not.
var dockerScripts = []string{"containers", "init", "life", "logs", "probes", "resize", "restart", "run"}

// TestScriptOnDocker runs scripts of test/script on the machine's own dockerd.
func TestScriptOnDocker(t *testing.T) {
	bin, err := filepath.Abs("../bin/berth")
	check(t, err)
	archive, err := filepath.Abs("../bin/workload.tar")
	check(t, err)
	for _, path := range []string{bin, archive} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: run make build image", err)
		}
	}
	h := &harness{bin: bin, archive: archive, runtime: onDocker}
	scripts := dockerScripts
	if more := os.Getenv("BERTH_TEST_DOCKER_SCRIPTS"); more != "" {
		scripts = filepath.SplitList(more)
	}
	var files []string
	for _, name := range scripts {
		files = append(files, filepath.Join("script", name+".txtar"))
	}
	testscript.Run(t, testscript.Params{Files: files, Setup: h.setup, RequireExplicitExec: true,
		RequireUniqueNames: true, Condition: h.condition, Cmds: h.commands()})
}

// dockerd starts the machine's own dockerd for one test, and returns a function that ends it.
func (h *harness) dockerd() (d *dockertest.Daemon, end func() error, err error) {
	dir, err := os.MkdirTemp("", "bd")
	if err != nil {
		return nil, nil, err
	}
	d, err = dockertest.New(context.Background(), dockertest.Options{Dir: dir})
	if err != nil {
		return nil, nil, fmt.Errorf("start dockerd: %w (make setup installs it)", err)
	}
	return d, d.Close, d.Load(context.Background(), h.archive)
}

// dockerCommand stops, starts and freezes dockerd.
func dockerCommand(ts *testscript.TestScript, d *dockertest.Daemon, what string) {
	switch what {
	case "kill":
		ts.Check(d.Stop(unix.SIGKILL))
	case "start":
		ts.Check(d.Start(context.Background()))
	case "freeze":
		ts.Defer(func() { _ = d.Signal(unix.SIGCONT) }) // the end of the script needs it
		ts.Check(d.Signal(unix.SIGSTOP))
	case "thaw":
		ts.Check(d.Signal(unix.SIGCONT))
	default:
		ts.Fatalf("runtime %s: not for Docker", what)
	}
}
