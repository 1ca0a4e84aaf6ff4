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

// delay is how long changes are collected before they are written.
const delay = time.Second

// Changed must be called after the node has admitted a pod, and after the pod got a token.
func (o *Offline) Changed(uid types.UID) {
	o.mark(uid)
	o.wake.Wake()
}

// Resync compares the files on disk with the pods that the API server now wants. Call it when Server.Answers has become
// true.
func (o *Offline) Resync() { o.wake.Wake() }

func (o *Offline) mark(uid types.UID) {
	o.mu.Lock()
	o.due[uid] = true
	o.mu.Unlock()
}

// Run saves the admitted pods until ctx ends. While the API server does not answer, no saved pod is deleted. Errors
// of the disk are logged and retried.
func (o *Offline) Run(ctx context.Context) error {
	if o.key == nil {
		return nil // Load has returned the error
	}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); o.watch(watching) }()
	defer func() { stop(); <-done }()
	// A pod that is saved before there is an index would not be accepted after a kill.
	if err := o.finish(); err != nil {
		o.Log.Warn("cannot save the index of the saved pods, retrying", "err", err)
	}
	var pace checkpoint.Pace
	var confirmed time.Time // zero: not by this process
	for pace.Wait(ctx, o.wake.C(), delay) {
		err := o.write()
		if o.Server.Answers() && o.Now().Sub(confirmed) >= confirmInterval(o.MaxAge) {
			confirmed = o.Now()
			o.current.Confirmed, o.current.unsaved = confirmed, true
		}
		err = errors.Join(err, o.finish())
		switch fails, recovered := pace.Record(err); {
		case fails:
			o.Log.Warn("cannot save the pods of this node, retrying", "err", err)
		case recovered:
			o.Log.Info("pods of this node saved again")
		}
	}
	return ctx.Err()
}

// watch marks pods that have changed or whose objects or sets have changed. It also wakes Run regularly to note that
// the API server answers.
func (o *Offline) watch(ctx context.Context) {
	pods, objects := o.Desired.Watch(), o.Objects.Watch()
	defer pods.Stop()
	defer objects.Stop()
	var again <-chan time.Time
	if o.MaxAge > 0 {
		ticker := time.NewTicker(confirmInterval(o.MaxAge))
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-o.SetsChanged.C():
			for uid := range o.Desired.Snapshot().All() {
				o.mark(uid)
			}
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
					slices.ContainsFunc(o.Cluster.Names(p.Pod), func(k object.Key) bool { return changed[k] }) {
					o.mark(uid)
				}
			}
		}
		o.wake.Wake()
	}
}

// write updates the files of all marked pods.
func (o *Offline) write() error {
	o.mu.Lock()
	due := o.due
	o.due = map[types.UID]bool{}
	o.mu.Unlock()
	if o.Server.Answers() {
		for uid := range o.written {
			if _, ok := o.Desired.Get(uid); !ok {
				due[uid] = true // it was removed while the API server was away
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

// finish writes the index if it has changed, and then deletes the files of pods that are not in it any more. In this
// order, a deleted file that a person puts back is never accepted as current.
func (o *Offline) finish() error {
	if o.current.unsaved {
		if err := saveIndex(o.indexFile(), o.key, o.current.index); err != nil {
			return err
		}
		o.current.unsaved = false
	}
	var errs []error
	for uid := range o.current.deleted {
		if err := o.disk.Delete(string(uid)); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(o.current.deleted, uid)
	}
	return errors.Join(errs...)
}

func (o *Offline) writeOne(uid types.UID) error {
	was, there := o.written[uid]
	p, ok := o.Desired.Get(uid)
	switch {
	case !ok || !wanted(p, o.All):
		if !there || !ok && !o.Server.Answers() {
			return nil
		}
		delete(o.written, uid)
		delete(o.current.Pods, uid)
		o.current.deleted[uid], o.current.unsaved = true, true
		return nil
	case !o.Fleet.Working(uid):
		return nil
	}
	k, known := o.gather(p.Pod)
	if !known {
		return nil // the objects arrive later as a change
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
		delete(o.current.deleted, uid)
		o.current.Counter++
		if err := o.disk.Save(string(uid), seal(o.key, k.Pod, o.current.Counter, plain)); err != nil {
			return err
		}
		o.current.Pods[uid], o.current.unsaved = o.current.Counter, true
	}
	o.written[uid] = now
	return nil
}

// gather returns a pod with all that it needs. known is false until that is certain.
func (o *Offline) gather(p *corev1.Pod) (k Kept, known bool) {
	k.Pod = p
	for _, key := range o.Cluster.Names(p) {
		v, ok := o.Objects.Get(key)
		if !ok && !o.Cluster.Received(key) {
			return k, false
		}
		if v, ok := v.(object.Value); ok {
			k.Objects = append(k.Objects, v)
		}
	}
	if k.Sets, known = o.Server.Sets(p, k.Objects); !known {
		return k, false
	}
	k.Tokens = o.Tokens.Of(p.UID)
	return k, true
}
