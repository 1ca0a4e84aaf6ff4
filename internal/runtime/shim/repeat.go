package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/go-runc"

	"github.com/berth-run/berth/internal/base/poll"
	"github.com/berth-run/berth/internal/runtime/shim/child"
	"github.com/berth-run/berth/internal/runtime/shim/oci"
	"github.com/berth-run/berth/internal/runtime/shim/record"
)

// startFailed reports whether the start of a restored container was cut short. Its first process waits until its FIFO
// has a reader, and then writes to it. If the shim ends in between, the process fails.
func (c *container) startFailed() bool {
	init := c.record.Init
	if init.Phase != record.Created || init.Pid == 0 {
		return init.Phase == record.Created && init.Repeated // the shim before ended while it created it again
	}
	var stat child.Stat
	var err error
	// While it waits for a reader it sleeps. In any other state it is about to write, also if it is stopped or waits
	// for a disk.
	poll.Pace{First: time.Millisecond, Limit: time.Second}.Until(func() bool {
		stat, err = child.ReadStat(init.Pid)
		return err != nil || strings.ContainsAny(stat.State, "SZX")
	})
	return c.waits() && (err != nil || stat.Started != init.Started || stat.State == "Z")
}

// repeat creates the first process of such a container again, in the background: for its caller the container has
// been created. Calls for the container wait for it.
func (k *keeper) repeat(c *container) {
	id := c.record.ID
	if err := k.registry.reserve(id); err != nil {
		warn(id, err)
		return
	}
	go func() {
		if err := k.recreate(context.Background(), c); err != nil {
			warn(id, fmt.Errorf("create it again: %w", err))
			c.discard()
			c = nil
		}
		k.registry.set(id, c)
	}()
}

func (k *keeper) recreate(ctx context.Context, c *container) error {
	// The process before is not taken for the new one.
	init := &c.init.state
	init.Pid, init.Started, init.Console, init.ConsoleStarted, init.Repeated = 0, 0, 0, 0, true
	c.record.OOMKills, c.oom = 0, 0
	if err := c.save(); err != nil {
		return err
	}
	err := c.runc.Delete(ctx, c.record.ID, &runc.DeleteOpts{Force: true})
	if err != nil && !oci.IsGone(err) {
		return oci.Error(c.runc.Log, "delete", err)
	}
	return k.createInit(ctx, c)
}
