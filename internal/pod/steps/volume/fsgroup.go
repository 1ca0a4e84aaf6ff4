package volume

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume/ownership"
	"github.com/berth-run/berth/internal/record/event"
)

// A change of ownership that takes longer than ownershipSlow is an event, repeated every ownershipAgain. The kubelet
// has the same periods.
const (
	ownershipSlow  = 30 * time.Second
	ownershipAgain = time.Minute
)

// annotationGroup is the annotation of a PersistentVolume with the group id that may use it.
const annotationGroup = "pv.beta.kubernetes.io/gid"

// owner gives the files of volumes to the fsGroup of pods.
type owner struct{ events event.Sink }

// own gives a volume's files to the pod's fsGroup.
func (o owner) own(ctx context.Context, r Request, path string) error {
	s := r.Pod.Spec.SecurityContext
	if s == nil || s.FSGroup == nil {
		return nil
	}
	root, err := safepath.Host(path)
	if err != nil {
		return err
	}
	defer root.Close()
	walk := &ownership.Walk{}
	defer o.warnIfSlow(r, walk)()
	err = walk.Run(ctx, root, ownership.Want{Group: *s.FSGroup, Policy: s.FSGroupChangePolicy})
	if partial, ok := errors.AsType[*ownership.Partial](err); ok {
		warn(o.events, r.Pod, reason.FailedMount, "fsGroup %d of volume %q: %v", *s.FSGroup, r.Volume.Name, partial)
		return nil
	}
	if err != nil {
		return fmt.Errorf("apply fsGroup %d: %w", *s.FSGroup, err)
	}
	return nil
}

// warnIfSlow writes events while a walk takes long, until stop is called.
func (o owner) warnIfSlow(r Request, walk *ownership.Walk) (stop func()) {
	timer := time.NewTimer(ownershipSlow)
	done := make(chan struct{})
	var watch guard.Group
	watch.Go(func() {
		select {
		case <-done:
			return
		case <-timer.C:
		}
		warn(o.events, r.Pod, reason.VolumePermissionChangeInProgress,
			"Setting volume ownership for %s is taking longer than expected, consider using fsGroupChangePolicy: "+
				"OnRootMismatch", r.Volume.Name)
		for {
			timer.Reset(ownershipAgain)
			select {
			case <-done:
				return
			case <-timer.C:
			}
			warn(o.events, r.Pod, reason.VolumePermissionChangeInProgress,
				"Setting volume ownership for %s, processed %d files.", r.Volume.Name, walk.Seen())
		}
	})
	return func() { timer.Stop(); close(done); watch.Wait() }
}

func warn(events event.Sink, p *corev1.Pod, why, format string, args ...any) {
	events.Event(event.PodRef(p), corev1.EventTypeWarning, why, format, args...)
}

// groupsOf returns the supplemental groups that a volume brings to the containers that use it.
func groupsOf(v *corev1.PersistentVolume) ([]int64, error) {
	if v == nil || v.Annotations[annotationGroup] == "" {
		return nil, nil
	}
	gid, err := strconv.ParseInt(v.Annotations[annotationGroup], 10, 32)
	if err != nil || gid < 0 {
		return nil,
			fmt.Errorf("the annotation %s of PersistentVolume %s is not a group: %q", annotationGroup, v.Name,
				v.Annotations[annotationGroup])
	}
	return []int64{gid}, nil
}
