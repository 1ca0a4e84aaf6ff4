package cgroup

import (
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
)

// podRecords holds this process's records about the cgroups of pods.
type podRecords struct {
	mu  sync.Mutex
	all map[types.UID]*podRecord
}

type podRecord struct {
	pod      *corev1.Pod
	fits     *hierarchy.Limits // the pod's own limits, if the cgroup has them
	written  *hierarchy.Limits // the limits that were last written
	vanished time.Time         // when the cgroup was last found missing
}

// add adds a pod without limits, unless it is there already.
func (x *podRecords) add(p *corev1.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[p.UID] == nil {
		x.all[p.UID] = &podRecord{pod: p}
	}
}

// put records the limits that were written to a pod's cgroup. fits are the pod's own limits. It is nil while the cgroup
// has larger ones.
func (x *podRecords) put(p *corev1.Pod, l hierarchy.Limits, fits *hierarchy.Limits) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.all[p.UID]
	if r == nil {
		r = &podRecord{}
		x.all[p.UID] = r
	}
	r.pod, r.written = p, &l
	if fits != nil {
		r.fits = fits
	}
}

// written returns the limits that were last written to a pod's cgroup.
func (x *podRecords) written(uid types.UID) (hierarchy.Limits, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.all[uid]
	if r == nil || r.written == nil {
		return hierarchy.Limits{}, false
	}
	return explicit(*r.written), true
}

// fit reports whether the pod's own limits that were last written are l.
func (x *podRecords) fit(uid types.UID, l hierarchy.Limits) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.all[uid]
	return r != nil && r.fits != nil && reflect.DeepEqual(*r.fits, l)
}

// lose records that a pod's cgroup has vanished, and returns the pod, or nil if it is not known.
func (x *podRecords) lose(uid types.UID) *corev1.Pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.all[uid]
	if r == nil {
		return nil
	}
	r.vanished, r.fits, r.written = time.Now(), nil, nil
	return r.pod
}

func (x *podRecords) vanished(uid types.UID) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.all[uid]; r != nil {
		return r.vanished
	}
	return time.Time{}
}

func (x *podRecords) forget(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, uid)
}
