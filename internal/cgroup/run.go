package cgroup

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// retryShares is the time between attempts to write the shares.
const retryShares = time.Minute

// Run keeps the CPU shares of the Burstable level at what its pods request,
// until ctx ends. It is apart from the start of a pod, which does not wait for it.
func (c *Cgroups) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		case <-retry.C:
		}
		if err := c.share(); err != nil {
			c.cfg.Log.Warn("The CPU shares of Burstable pods are not up to date", "err", err, "again in", retryShares)
			retry.Reset(retryShares)
		}
	}
}

// share writes the shares if they are not what they were.
func (c *Cgroups) share() error {
	want := burstableShares(c.cfg.Pods())
	t, err := c.open()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if want == c.shares {
		return nil
	}
	if err := t.set(level(c.root, corev1.PodQOSBurstable), Limits{Shares: want}); err != nil {
		return err
	}
	c.shares = want
	return nil
}
