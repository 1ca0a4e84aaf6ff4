package cgroup

import (
	"context"
	"time"
)

// retryLevels is the time between two attempts to set limits that could not be set.
const retryLevels = time.Minute

// Run keeps the limits of the levels equal to the requests of their pods, and sets the limits of reserved cgroups,
// until ctx ends. The start of a pod does not wait for it.
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
		err := c.levels.follow()
		if err != nil {
			c.cfg.Log.Warn("cannot update the cgroups above pods, retrying", "err", err, "after", retryLevels)
		}
		unset := c.reserved.enforce()
		if c.levels.retry() || unset || err != nil {
			retry.Reset(retryLevels)
		}
	}
}
