package cgroup

import (
	"context"
	"reflect"
	"time"
)

// retryLevels is the time between attempts to bound what could not be bounded.
const retryLevels = time.Minute

// Run keeps the levels at what their pods request, and what is reserved bounded,
// until ctx ends. It is apart from the start of a pod, which does not wait for it.
func (c *Cgroups) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed.C():
		case <-retry.C:
		}
		err := c.follow()
		if err != nil {
			c.cfg.Log.Warn("The cgroups above pods are not up to date", "err", err, "again in", retryLevels)
		}
		if left := (enforcer{c}).enforce(); left || err != nil {
			retry.Reset(retryLevels)
		}
	}
}

// follow writes what pods request together if it is not what it was.
func (c *Cgroups) follow() error {
	asked := demandOf(c.cfg.Pods())
	t, err := c.open()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.made || asked == c.asked {
		return nil
	}
	for _, class := range classes() {
		now, was := levelLimits(class, asked, c.cfg), levelLimits(class, c.asked, c.cfg)
		if reflect.DeepEqual(now, was) {
			continue
		}
		if err := t.set(level(c.root, class), now); err != nil {
			return err
		}
	}
	c.asked = asked
	return nil
}
