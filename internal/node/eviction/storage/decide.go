package storage

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// The signals of the kubelet, for the series kubelet_evictions.
const (
	EmptyDirLimit  = "emptydirfs.limit"
	PodLimit       = "ephemeralpodfs.limit"
	ContainerLimit = "ephemeralcontainerfs.limit"
)

// Mode is how limits of local storage are enforced. By default a pod that exceeds one is evicted.
type Mode struct {
	// Off ignores all limits, and reports no ephemeral-storage of the node (localStorageCapacityIsolation: false).
	Off bool
	// Quotas makes writes beyond the sizeLimit of an emptyDir fail, where the file system enforces project quotas.
	Quotas bool
	// Walk measures emptyDirs file by file, also where the file system has project quotas.
	Walk bool
}

// Usage is how much a pod stores on the node, in bytes.
type Usage struct {
	// EmptyDirs holds the emptyDirs on disk by the name of the volume.
	EmptyDirs map[string]EmptyDir
	// Containers holds the logs and the writable layers of the running containers by name. It has no layers if they lie
	// on another file system than the logs, as under the kubelet.
	Containers map[string]int64
	// Total is the use of the whole pod: logs, writable layers, emptyDirs on disk and ConfigMaps.
	Total int64
}

// EmptyDir is the use of one emptyDir.
type EmptyDir struct {
	Bytes int64
	// Err says why the volume cannot be measured at all. A pod cannot evade its limit by making such a volume.
	Err error
}

// Excess is a limit that a pod exceeds.
type Excess struct{ Signal, Message string }

// Limited reports whether a pod has a limit of local storage.
func Limited(p *corev1.Pod) bool { return LimitsTotal(p) || len(limits(p, Usage{})) > 0 }

// LimitsTotal reports whether logs and writable layers of a pod count too.
func LimitsTotal(p *corev1.Pod) bool {
	_, ok := total(p)
	return ok
}

// Exceeded returns the first limit that a pod exceeds, or nil: emptyDirs come first, then the limit of the whole pod,
// then the limits of its containers. Init containers have no limits of their own. They count in the pod's limit only.
func Exceeded(p *corev1.Pod, used Usage) *Excess {
	for _, l := range limits(p, used) {
		if l.used > l.most || l.err != nil {
			return &Excess{l.signal, l.message()}
		}
	}
	return nil
}

// Room returns by how many bytes a pod may grow before it may exceed a limit. It is at least 0.
func Room(p *corev1.Pod, used Usage) int64 {
	room := int64(math.MaxInt64)
	for _, l := range limits(p, used) {
		room = min(room, l.most-l.used)
	}
	return max(0, room)
}

// limit is a limit of local storage with the present use.
type limit struct {
	signal, name string
	text         string // the limit as the pod spells it
	used, most   int64  // bytes
	err          error
}

func (l limit) message() string {
	switch {
	case l.err != nil:
		return fmt.Sprintf("Usage of EmptyDir volume %q cannot be measured against the limit %q: %v. ", l.name, l.text,
			l.err)
	case l.signal == EmptyDirLimit:
		return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", l.name, l.text)
	case l.signal == PodLimit:
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", l.text)
	default:
		return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", l.name, l.text)
	}
}

// limits returns the limits of a pod, in the kubelet's order.
func limits(p *corev1.Pod, used Usage) (all []limit) {
	add := func(signal, name string, q *resource.Quantity, bytes int64, err error) {
		all = append(all, limit{signal, name, q.String(), bytes, q.Value(), err})
	}
	for _, v := range p.Spec.Volumes {
		if e := v.EmptyDir; e != nil && e.Medium == corev1.StorageMediumDefault && e.SizeLimit != nil &&
			e.SizeLimit.Sign() > 0 {
			add(EmptyDirLimit, v.Name, e.SizeLimit, used.EmptyDirs[v.Name].Bytes, used.EmptyDirs[v.Name].Err)
		}
	}
	if q, ok := total(p); ok {
		add(PodLimit, "", &q, used.Total, nil)
	}
	for _, c := range p.Spec.Containers {
		if q := c.Resources.Limits.StorageEphemeral(); q.Sign() > 0 {
			add(ContainerLimit, c.Name, q, used.Containers[c.Name], nil)
		}
	}
	return all
}

// total returns the limit of the whole pod.
func total(p *corev1.Pod) (q resource.Quantity, ok bool) {
	q, ok = resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return q, ok
}

// A pod is measured soon after its start, and then at least as often as the kubelet does. A pod that may have come
// close to a limit is measured earlier. Long measurements are repeated less often: one pod's take at most a hundredth
// of the time, and all pods' together at most a tenth.
const (
	firstMeasurement = time.Second
	shortest         = time.Second
	period           = 10 * time.Second
	share            = 100
	shareOfAll       = 10
	longest          = 10 * time.Minute
	// shortestCounted is the least time between two readings of what the file system counts.
	shortestCounted = 250 * time.Millisecond
	// unlimited is the room of a pod without a known limit.
	unlimited = math.MaxInt64 / 2
	// burst is the speed of a fast disk in bytes a second. Few programs write faster.
	burst = 256 << 20
)

// measured is the last measurement of a pod.
type measured struct {
	at time.Time
	// took is how long it worked, without the time that it waited.
	took time.Duration
	// room is how many bytes the pod could still write, and disk how many bytes of the file systems were in use.
	room, disk int64
	// counted: the file system has counted what the pod uses.
	counted bool
}

// next returns when to measure a pod again, or to look at the file systems again, whichever comes first. due says that
// the time has come. disk is how many bytes of the file systems are in use now. No pod can have grown by much more than
// they have. pods is the number of pods that are measured.
func (m measured) next(now time.Time, disk int64, pods int) (due bool, again time.Time) {
	least := shortest
	if m.counted {
		least = shortestCounted
	}
	spare := min(max(least, share*m.took, shareOfAll*time.Duration(pods)*m.took), longest)
	earliest, latest := m.at.Add(spare), m.at.Add(max(period, spare))
	if left := m.room/2 - (disk - m.disk); left <= 0 {
		latest = earliest
	} else {
		seconds := min(float64(left)/burst, period.Seconds())
		again = now.Add(max(least, time.Duration(seconds*float64(time.Second))))
	}
	if !now.Before(latest) {
		return true, now
	}
	if again.IsZero() || latest.Before(again) {
		again = latest
	}
	return false, again
}
