package pressure

import (
	"strings"

	"github.com/berth-run/berth/internal/node/kmsg"
)

// Owner implements kmsg.Pods.
func (p *Pods) Owner(cgroup string) *kmsg.Owner {
	for _, o := range p.Fleet.Holders() {
		_, path, err := p.Cgroups.Pod(o.Pod.Pod)
		if err != nil {
			continue
		}
		below, ok := within(cgroup, path)
		if !ok {
			continue
		}
		owner := &kmsg.Owner{Pod: o.Pod.Pod}
		for _, c := range p.Observed.Observed(o.Pod.Pod.UID).ContainersOf() {
			if strings.Contains(below, c.ID) {
				owner.Container = c.Name
			}
		}
		return owner
	}
	return nil
}

// within returns the part of a cgroup's path below the pod's. The kernel's path may be longer at its start: the agent
// may see a part of the hierarchy only.
func within(cgroup, pod string) (below string, ok bool) {
	_, below, ok = strings.Cut(cgroup+"/", "/"+strings.Trim(pod, "/")+"/")
	return strings.Trim(below, "/"), ok
}
