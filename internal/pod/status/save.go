package status

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/model/pod"
)

// Load reads the statuses that an earlier agent has saved. It is called once, before anything is published. If it
// returns an error, the files that it could read still count.
func (r *Record) Load() error {
	if r.files == nil {
		return nil
	}
	all, err := r.files.LoadAll()
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, status := range all {
		r.saved[types.UID(uid)] = status
	}
	if err != nil {
		return fmt.Errorf("load pod statuses: %w", err)
	}
	return nil
}

// Retain forgets the statuses read by Load whose pods are not wanted any more.
func (r *Record) Retain(wanted func(types.UID) bool) {
	r.mu.Lock()
	gone := maps.Clone(r.saved)
	r.mu.Unlock()
	for uid := range gone {
		if !wanted(uid) {
			r.forget(uid)
		}
	}
}

// Run saves the statuses that have changed, and once more when ctx ends. It repeats a failed write after the delay. Of
// several failures in a row it logs the first.
func (r *Record) Run(ctx context.Context) error {
	if r.files == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return checkpoint.SaveLater(ctx, r.wake.C(), checkpoint.Delay{After: r.opts.Delay}, r.flush)
}

// save writes a status. Only the status of a pod that has ended must outlive a power cut, since the pod must not run
// again. A power cut ends the containers of a running pod, so its status is computed afresh.
func (r *Record) save(uid types.UID, status corev1.PodStatus) error {
	if pod.Ended(status.Phase) {
		return r.files.Save(string(uid), status)
	}
	return r.files.SaveUnsynced(string(uid), status)
}

// touch makes Run save the status of a pod.
func (r *Record) touch(uid types.UID) {
	if r.files == nil {
		return
	}
	r.mu.Lock()
	r.dirty[uid] = struct{}{}
	r.mu.Unlock()
	r.wake.Wake()
}

// flush writes the file of every pod whose file is out of date.
func (r *Record) flush() {
	r.disk.Lock()
	defer r.disk.Unlock()
	r.mu.Lock()
	dirty := r.dirty
	r.dirty = map[types.UID]struct{}{}
	r.mu.Unlock()
	failed := 0
	var last error
	for uid := range dirty {
		var err error
		if status, ok := r.table.Get(uid); ok {
			err = r.save(uid, status)
		} else {
			err = r.files.DeleteUnsynced(string(uid))
		}
		if err != nil {
			failed, last = failed+1, err
			r.touch(uid)
		}
	}
	switch {
	case failed > 0:
		r.logFailed(failed, last)
	case len(dirty) > 0:
		r.failing = false
	}
}

// logFailed logs that statuses could not be saved, unless the write before failed as well. The caller holds disk.
func (r *Record) logFailed(pods int, err error) {
	if !r.failing {
		r.opts.Log.Error("cannot save pod statuses, retrying until it works",
			"pods", pods, "disk full", checkpoint.IsDiskFull(err), "err", err)
	}
	r.failing = true
}
