package dockertest

import (
	"context"
	"errors"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/internal/base/roottest"
)

// Start starts a dockerd for the time of a test, with the images of some archives. It skips the test unless it runs as
// root.
func Start(t testing.TB, archives ...string) *Daemon {
	t.Helper()
	return StartWith(t, Options{}, archives...)
}

// StartWith does the same with options, whose directory it makes.
func StartWith(t testing.TB, o Options, archives ...string) *Daemon {
	t.Helper()
	var d *Daemon
	o.Dir = roottest.Dir(t, "running dockerd", func(string) {
		if d == nil {
			return
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	started, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	d = started
	for _, archive := range archives {
		if err := d.Load(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// Create makes a container without a network. change, if it is not nil, edits its configuration before.
func (d *Daemon) Create(t testing.TB, image string, cmd []string,
	change func(*container.Config, *container.HostConfig)) (id string) {
	t.Helper()
	config := &container.Config{Image: image, Cmd: cmd}
	host := &container.HostConfig{NetworkMode: "none"}
	if change != nil {
		change(config, host)
	}
	created, err := d.client.ContainerCreate(t.Context(),
		client.ContainerCreateOptions{Config: config, HostConfig: host})
	if err != nil {
		t.Fatal(err)
	}
	return created.ID
}

// Run makes a container as Create does, and starts it.
func (d *Daemon) Run(t testing.TB, image string, cmd []string,
	change func(*container.Config, *container.HostConfig)) (id string) {
	t.Helper()
	id = d.Create(t, image, cmd, change)
	if _, err := d.client.ContainerStart(t.Context(), id, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	return id
}

// PidOf returns the ID of the first process of a running container.
func (d *Daemon) PidOf(t testing.TB, id string) int {
	t.Helper()
	r, err := d.client.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Container.State.Pid
}

// Wait waits for the end of a container, and returns its exit code.
func (d *Daemon) Wait(t testing.TB, id string) int64 {
	t.Helper()
	w := d.client.ContainerWait(t.Context(), id,
		client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case r := <-w.Result:
		return r.StatusCode
	case err := <-w.Error:
		t.Fatal(errors.Join(errors.New("wait for container "+id), err))
	}
	return -1
}
