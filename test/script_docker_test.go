package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/moby/moby/client"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/pausetest"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/internal/model/pod"
)

// onDocker is the name of the runtime that is a Docker Engine.
const onDocker = "docker"

// notOnDocker matches the line of a script that leaves out Docker and says why.
var notOnDocker = regexp.MustCompile(`(?m)^\[(docker|!embedded|!containerd|!vm|!systemd)\] skip '`)

// scriptsOnDocker returns the scripts that run on Docker: those that BERTH_TEST_DOCKER_SCRIPTS names (NAME:NAME), or
// all that do not leave it out. It leaves them out before they start a dockerd of their own.
func scriptsOnDocker(t *testing.T) (files []string) {
	if some := os.Getenv("BERTH_TEST_DOCKER_SCRIPTS"); some != "" {
		for _, name := range filepath.SplitList(some) {
			files = append(files, filepath.Join("script", name+".txtar"))
		}
		return files
	}
	all, err := filepath.Glob("script/*.txtar")
	check(t, err)
	for _, file := range all {
		text, err := os.ReadFile(file)
		check(t, err)
		if !notOnDocker.Match(text) {
			files = append(files, file)
		}
	}
	return files
}

// TestScriptOnDocker runs the scripts of test/script on the machine's own dockerd.
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
	testscript.Run(t, testscript.Params{Files: scriptsOnDocker(t), Setup: h.setup, RequireExplicitExec: true,
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

// loseFromDocker removes a pod's containers with Docker's own API.
func loseFromDocker(ts *testscript.TestScript, d *dockertest.Daemon, name string) {
	ctx := context.Background()
	all, err := d.Client().ContainerList(ctx, client.ContainerListOptions{All: true,
		Filters: client.Filters{}.Add("label", pod.LabelPodName+"="+name)})
	ts.Check(err)
	for _, c := range all.Items {
		if c.Labels["io.kubernetes.docker.type"] == "container" {
			_, err := d.Client().ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true})
			ts.Check(err)
		}
	}
}

// dockerCommand stops, starts and freezes dockerd.
func dockerCommand(ts *testscript.TestScript, d *dockertest.Daemon, what string) {
	switch what {
	case "kill":
		ts.Check(d.Stop(unix.SIGKILL))
	case "start":
		ts.Check(d.Start(context.Background()))
	case "freeze":
		ts.Defer(func() { _ = pausetest.Resume(d.Process()) }) // the end of the script needs it
		ts.Check(pausetest.Pause(d.Process()))
	case "thaw":
		ts.Check(pausetest.Resume(d.Process()))
	default:
		ts.Fatalf("runtime %s: not for Docker", what)
	}
}
