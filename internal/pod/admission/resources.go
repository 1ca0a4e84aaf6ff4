package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/device"
)

// amounts holds CPU in millicores, and every other resource in units or bytes.
type amounts map[corev1.ResourceName]int64

// Requests are the amounts of the node that a pod uses up. The zero value is unknown.
type Requests struct{ amounts }

// RequestsOf returns the requests of a pod (KEP-753, KEP-2837, with overhead), and one of the node's places for pods.
// Devices of DRA drivers do not count.
func RequestsOf(p *corev1.Pod) Requests {
	a := amountsOf(resourcehelper.PodRequests(pod.WithoutClaimed(p), resourcehelper.PodResourcesOptions{}))
	a[corev1.ResourcePods] = 1
	return Requests{a}
}

// requested returns the amounts that the pod uses up.
func (o PodInfo) requested() amounts {
	if o.Requests.amounts == nil {
		return RequestsOf(o.Pod).amounts
	}
	return o.Requests.amounts
}

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list)+1)
	for name, q := range list {
		if name == corev1.ResourceCPU {
			a[name] = q.MilliValue()
		} else {
			a[name] = q.Value()
		}
	}
	return a
}

func (a amounts) add(b amounts) {
	for name, n := range b {
		a[name] += n
	}
}

// order returns the names in the kubelet's order. The first resource in it that is short gives the reason.
func (a amounts) order() []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory,
		corev1.ResourceEphemeralStorage}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(a)), func(n corev1.ResourceName) bool {
		return slices.Contains(first, n)
	})
	return append(first, rest...)
}

// shortage is a resource of the node that is not enough for a pod.
type shortage struct {
	name                      corev1.ResourceName
	requested, used, capacity int64
	leaving                   int64 // the part of used that terminating pods hold
	unserved                  bool  // no device plugin offers this resource
}

// missing returns the amount that is lacking even after all terminating pods are gone.
func (s shortage) missing() int64 { return s.requested - (s.capacity - s.used) - s.leaving }

func (s shortage) String() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", s.name,
		s.requested, s.used, s.capacity)
}

// Fits checks only whether the node has the resources that a pod requests beside the other pods. It serves resizes,
// which change nothing that the other rules ask about.
func Fits(in In) Answer { return checkResources(in) }

// checkResources compares the requests of all pods with the allocatable of the node. A standalone agent does not ignore
// an extended resource that no plugin offers: no scheduler has counted it elsewhere.
func checkResources(in In) Answer {
	short := shortages(in)
	var lasting []shortage
	for _, s := range short {
		if s.missing() > 0 {
			lasting = append(lasting, s)
		}
	}
	switch {
	case len(short) == 0:
		return Answer{}
	case len(lasting) == 0:
		return awaitEnds(in, short)
	}
	if !slices.ContainsFunc(lasting, func(s shortage) bool { return !s.unserved }) && in.Now.Before(in.PluginsBy) {
		return Answer{
			Verdict: NotYet, Reason: outOf(lasting[0]), Until: in.PluginsBy,
			Message: "waiting for a device plugin that offers " + names(lasting) + ": " + texts(lasting),
		}
	}
	if a, ok := makeRoom(in, lasting); ok {
		return a
	}
	for _, s := range lasting {
		if !s.unserved { // an unserved resource may still come
			return reject(outOf(s), "%s", s)
		}
	}
	return reject(outOf(lasting[0]), "%s", lasting[0])
}

// shortages returns the resources that do not suffice for the pod beside the other pods.
func shortages(in In) []shortage {
	want, used, leaving := RequestsOf(in.Pod).amounts, amounts{}, amounts{}
	for o := range in.others() {
		r := o.requested()
		used.add(r)
		if o.Terminating {
			leaving.add(r)
		}
	}
	capacity, held := amountsOf(in.Node.Allocatable), heldDevices(in)
	var short []shortage
	for _, name := range want.order() {
		s := shortage{name: name, requested: want[name], used: used[name], capacity: capacity[name],
			leaving: leaving[name]}
		if extended(name) {
			if held[name] >= s.requested {
				continue // the pod holds them since an earlier agent, with or without a plugin
			}
			if _, fixed := capacity[name]; !fixed {
				s.capacity = healthy(in.Devices[name])
				if len(in.Devices[name]) == 0 {
					offered, reported := in.Offered[name]
					if !reported && !in.Config.Standalone {
						continue // a resource of the cluster and not of its nodes
					}
					s.capacity = offered.Value()
				}
				s.unserved = s.capacity == 0
			}
		}
		if s.requested > 0 && s.requested > s.capacity-s.used {
			short = append(short, s)
		}
	}
	return short
}

// extended reports whether a resource is offered by device plugins, and not one of Kubernetes itself.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
}

func healthy(devices []device.Device) (n int64) {
	for _, d := range devices {
		if d.Healthy {
			n++
		}
	}
	return n
}

// heldDevices counts the devices that the pod holds, by resource.
func heldDevices(in In) amounts {
	held := amounts{}
	for _, given := range in.Given.Containers {
		for name, ids := range given.Devices {
			held[name] += int64(len(ids))
		}
	}
	return held
}

// awaitEnds waits for the terminating pods that hold resources which are short.
func awaitEnds(in In, short []shortage) Answer {
	var holders []PodInfo
	for o := range in.others() {
		r := o.requested()
		if o.Terminating && slices.ContainsFunc(short, func(s shortage) bool { return r[s.name] > 0 }) {
			holders = append(holders, o)
		}
	}
	a := notYet(outOf(short[0]), holders, "%s", texts(short))
	a.Reserve = in.critical(in.Pod)
	return a
}

// makeRoom preempts less important pods for a critical one. It does so only if the pod is then admitted: no pod ends
// for one that is rejected afterwards.
func makeRoom(in In, lasting []shortage) (Answer, bool) {
	if !in.critical(in.Pod) {
		return Answer{}, false
	}
	victims, ok := victims(in, lasting)
	if !ok {
		return Answer{}, false
	}
	a := notYet(outOf(lasting[0]), victims, "%s", texts(lasting))
	a.Reserve = true
	for _, v := range victims {
		a.Preempt = append(a.Preempt, v.Pod.UID)
	}
	if in.Allot == nil {
		return a, true
	}
	var staying []types.UID
	for o := range in.others() {
		if !o.Terminating && !slices.Contains(a.Preempt, o.Pod.UID) {
			staying = append(staying, o.Pod.UID)
		}
	}
	if _, err := in.Allot(staying); err != nil {
		return reject(allotReason(err), "%s", reason.Message(err)), true
	}
	return a, true
}

// critical reports whether other pods make room for a pod.
func (in In) critical(p *corev1.Pod) bool { return pod.Critical(p, in.Config.StaticCritical) }

func outOf(s shortage) string { return "OutOf" + string(s.name) }

func names(list []shortage) string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = string(s.name)
	}
	return strings.Join(all, ", ")
}

func texts(list []shortage) string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = s.String()
	}
	return strings.Join(all, "; ")
}
