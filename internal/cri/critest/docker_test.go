package critest_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest"
	"github.com/berth-run/berth/internal/docker/dockertest"
)

// TestDocker runs the machine's own dockerd on temporary directories, with the shim in this process.
func TestDocker(t *testing.T) {
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("dockerd is not installed")
	}
	critest.Suite(t, func(t *testing.T) critest.Env {
		dir := scratch(t)
		cgroup := cgroupParent(t)
		daemon := dockertest.Start(t, buildImage(t, dir))
		c := &config.Config{RootDir: filepath.Join(dir, "root"), RunDir: filepath.Join(dir, "run")}
		c.Runtime.Embedded.CNIConfDir = filepath.Join(dir, "no-cni")
		runtime := kind.All{}.Runtime(endpoint.Choice{Endpoint: "docker://unix://" + daemon.Socket()}, c, nil,
			slog.New(slog.NewTextHandler(os.Stderr, nil)))
		ctx, stop := context.WithCancel(context.Background())
		var parts sync.WaitGroup
		client, err := runtime.Connect(t.Context(), func(run func(context.Context) error) {
			parts.Go(func() {
				if err := run(ctx); err != nil {
					t.Errorf("the shim ended: %v", err)
				}
			})
		}, cri.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			stop()
			parts.Wait()
			if err := errors.Join(client.Close(), runtime.RemoveNetwork(context.Background())); err != nil {
				t.Error(err)
			}
		})
		awaitRuntime(t, client)
		return critest.Env{Client: client, Image: workload, Logs: filepath.Join(dir, "logs"), CgroupParent: cgroup,
			Processes: true, ExecGroups: true, HostPorts: true, Events: true}
	})
}

// awaitRuntime waits until the shim follows dockerd.
func awaitRuntime(t *testing.T, client *cri.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		_, err := client.Verify(ctx)
		if err == nil {
			return
		}
		if !cri.IsUnavailable(err) {
			t.Fatal(err)
		}
	}
}
