package claim

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
)

// applied holds the claims of "berth apply".
type applied interface {
	// DeleteObject removes a claim.
	DeleteObject(context.Context, object.Key) error
}

// Delete deletes a claim for a user. The claim is marked as deleted before it is removed. So after a kill in between,
// the next agent never takes a missing claim for a deleted one, or the other way round: the mark of a claim that still
// exists is withdrawn.
//
// bare reports whether only the volume of the claim is there, because its manifest disappeared. Then the claim is
// deleted, although from returns an error for a claim that does not exist. After any other error nothing has changed.
func (c *Claims) Delete(ctx context.Context, name types.NamespacedName, from applied) (bare bool, err error) {
	known, err := c.mark(name)
	if err != nil {
		return false, err
	}
	_, exists := c.cfg.Objects.Get(keyOf(name))
	err = from.DeleteObject(ctx, keyOf(name))
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.deleting[name]
	delete(c.deleting, name)
	if now := c.bindings[name]; err != nil && exists && before != nil && now != nil {
		undone := *now
		undone.Deleted, undone.Origin = before.Deleted, before.Origin
		if failed := c.change(name, &undone); failed != nil {
			c.cfg.Log.Warn("cannot save that a claim was not deleted, retrying", "claim", name, "err", failed)
		}
	}
	c.wake.Wake()
	return known && !exists, err
}

// mark marks the binding of a claim as deleted, and keeps passes from withdrawing the mark. It reports whether there is
// a binding.
func (c *Claims) mark(name types.NamespacedName) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bindings[name]
	if b == nil || b.Owner != "" {
		return false, nil
	}
	if c.deleting[name] != nil {
		return true, fmt.Errorf("delete claim %s: it is being deleted by another call", name)
	}
	marked, now := *b, c.cfg.Now()
	marked.Origin = nil
	if marked.Deleted == nil {
		marked.Deleted = &now
	}
	if err := c.change(name, &marked); err != nil {
		return true, err
	}
	c.deleting[name] = b
	return true, nil
}
