package offline

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/model/object"
)

// delay is how long changes are gathered before they are written.
const delay = time.Second

// Changed has a pod looked at: the node has taken it on, or it was given a token.
func (o *Offline) Changed(uid types.UID) {
	o.mark(uid)
	o.wake()
}

// Resync compares the files on disk with the pods that the API server now wants. Call it when Answers has become
// true.
func (o *Offline) Resync() { o.wake() }

// SetsChanged has all pods looked at: what Sets answers may be different now.
func (o *Offline) SetsChanged() {
	for uid := range o.Desired.Snapshot().All() {
		o.mark(uid)
	}
	o.wake()
}

func (o *Offline) mark(uid types.UID) {
	o.mu.Lock()
	o.due[uid] = true
	o.mu.Unlock()
}

func (o *Offline) wake() {
	select {
	case o.dirty <- struct{}{}:
	default:
	}
}

// Run keeps what is on disk equal to what the node has accepted, until ctx ends.
// While the API server does not answer nothing is forgotten. What goes wrong with
// the disk is logged and tried again.
func (o *Offline) Run(ctx context.Context) error {
	if o.key == nil {
		return nil // Load has said why
	}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); o.watch(watching) }()
	defer func() { stop(); <-done }()
	var pace checkpoint.Pace
	var confirmed time.Time
	for pace.Wait(ctx, o.dirty, delay) {
		err := o.write()
		if o.Answers() && o.Now().Sub(confirmed) >= later(o.MaxAge) {
			e := checkpoint.Save(o.confirmedFile(), format(), confirmation{o.Now()})
			if e == nil {
				confirmed = o.Now()
			}
			err = errors.Join(err, e)
		}
		switch fails, recovered := pace.Wrote(err); {
		case fails:
			o.Log.Warn("keep the pods of this node for when the API server is away", "err", err)
		case recovered:
			o.Log.Info("the pods of this node are kept again")
		}
	}
	return ctx.Err()
}

// watch marks pods that have changed, or whose objects have, and has the time
// noted again at which the API server was heard.
func (o *Offline) watch(ctx context.Context) {
	pods, objects := o.Desired.Watch(), o.Objects.Watch()
	defer pods.Stop()
	defer objects.Stop()
	var again <-chan time.Time
	if o.MaxAge > 0 {
		ticker := time.NewTicker(later(o.MaxAge))
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-pods.C():
			for _, c := range pods.Changes() {
				o.mark(c.Key)
			}
		case <-objects.C():
			changed := map[object.Key]bool{}
			for _, c := range objects.Changes() {
				changed[c.Key] = true
			}
			for uid, p := range o.Desired.Snapshot().All() {
				if wanted(p, o.All) &&
					slices.ContainsFunc(o.Names(p.Pod), func(k object.Key) bool { return changed[k] }) {
					o.mark(uid)
				}
			}
		}
		o.wake()
	}
}

// write brings the disk up to date for all pods that are due.
func (o *Offline) write() error {
	o.mu.Lock()
	due := o.due
	o.due = map[types.UID]bool{}
	o.mu.Unlock()
	if o.Answers() {
		for uid := range o.written {
			if _, ok := o.Desired.Get(uid); !ok {
				due[uid] = true // it went before that could be told
			}
		}
	}
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(due)) {
		if err := o.writeOne(uid); err != nil {
			errs = append(errs, err)
			o.mark(uid)
		}
	}
	return errors.Join(errs...)
}

func (o *Offline) writeOne(uid types.UID) error {
	was, there := o.written[uid]
	p, ok := o.Desired.Get(uid)
	switch {
	case !ok || !wanted(p, o.All):
		if !there || !ok && !o.Answers() {
			return nil
		}
		if err := o.disk.Delete(string(uid)); err != nil {
			return err
		}
		delete(o.written, uid)
		return nil
	case !o.Accepted(uid):
		return nil
	}
	k, known := o.gather(p.Pod)
	if !known {
		return nil // what is heard of later is a change
	}
	now := written{stamp: stamp(k)}
	if there && now.stamp != "" && now.stamp == was.stamp {
		return nil
	}
	plain, err := encode(k)
	if err != nil {
		return err
	}
	now.sum = sha256.Sum256(plain)
	if was.sum != now.sum {
		if err := o.disk.Save(string(uid), seal(o.key, k.Pod, plain)); err != nil {
			return err
		}
	}
	o.written[uid] = now
	return nil
}

// gather is a pod with all that it needs; known is false until that can be told.
func (o *Offline) gather(p *corev1.Pod) (k Kept, known bool) {
	k.Pod = p
	for _, key := range o.Names(p) {
		v, known := o.Find(key)
		if !known {
			return k, false
		}
		if v != nil {
			k.Objects = append(k.Objects, v)
		}
	}
	if o.Sets != nil {
		if k.Sets, known = o.Sets(p, k.Objects); !known {
			return k, false
		}
	}
	if o.Tokens != nil {
		k.Tokens = o.Tokens(p.UID)
	}
	return k, true
}
