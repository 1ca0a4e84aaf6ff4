package cgroup

import (
	"errors"
	"slices"
)

// RemoveLevels removes the cgroups above pods, for a node that takes none any
// more. One that still holds a pod is an error. The configured root goes too if
// it is empty then; the root of the hierarchy never does.
func (c *Cgroups) RemoveLevels() error {
	t, err := c.open()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = false
	if c.cfg.Drift != nil {
		for _, class := range classes() {
			c.cfg.Drift.Unwatch(levelKey(class))
		}
	}
	var errs []error
	for _, class := range slices.Backward(classes()) { // the innermost first
		if l := level(c.root, class); t.exists(l) {
			errs = append(errs, t.remove(l))
		}
	}
	if len(c.root) > 0 && t.exists(c.root) {
		children, err := t.children(c.root)
		if err == nil && len(children) == 0 {
			err = t.remove(c.root)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
