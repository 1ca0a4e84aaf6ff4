package pressure

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/node/kmsg"
)

// Owner implements kmsg.Pods.
func (p *Pods) Owner(cgroup string) *kmsg.Owner {
	for _, o := range p.Fleet.Holders() {
		_, path, err := p.Cgroups.Pod(o.Pod.Pod)
		if err != nil {
			continue
		}
		if below, ok := within(cgroup, path); ok {
			owner := &kmsg.Owner{Pod: o.Pod.Pod}
			owner.Container, owner.ID = p.container(o.Pod.UID, below)
			return owner
		}
	}
	return nil
}

// container returns the name and the ID of the container that has a cgroup below its pod's. It waits for a container
// that the table does not have yet: it has just started, and a runtime without events is listed once a second. below is
// empty for the pod's own cgroup, which has no container.
func (p *Pods) container(uid types.UID, below string) (name, id string) {
	const patience = 3 * time.Second
	if below == "" {
		return "", ""
	}
	changes := p.Observed.Watch()
	defer changes.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		for _, c := range p.Observed.Observed(uid).ContainersOf() {
			if strings.Contains(below, c.ID) {
				name, id = c.Name, c.ID
			}
		}
		if name != "" {
			return name, id
		}
		select {
		case <-changes.C():
			changes.Changes()
		case <-late.C:
			return "", ""
		}
	}
}

// within returns the part of a cgroup's path below the pod's. The kernel's path may be longer at its start: the agent
// may see a part of the hierarchy only.
func within(cgroup, pod string) (below string, ok bool) {
	_, below, ok = strings.Cut(cgroup+"/", "/"+strings.Trim(pod, "/")+"/")
	return strings.Trim(below, "/"), ok
}
