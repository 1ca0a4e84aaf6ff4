package kmsg

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Scope says whose memory ran out when the kernel killed a process.
type Scope string

// The scopes, from small to large.
const (
	OfContainer Scope = "container" // a container reached its limit
	OfPod       Scope = "pod"       // a pod reached its limit, no single container did
	OfPods      Scope = "pods"      // all pods of the node, or of a QoS class, reached their limit
	OfMachine   Scope = "machine"   // the machine has no memory left
)

// Owner is the owner of a cgroup.
type Owner struct {
	Pod *corev1.Pod
	// Container is the container's name, and ID its ID. They are empty for the cgroup of the pod itself.
	Container, ID string
}

// kill is a process that the kernel killed, with the reason (since Linux 5.1).
type kill struct {
	// limited is the cgroup that reached its limit. It is empty if the machine is out of memory.
	limited string
	// cgroup is the cgroup of the process.
	cgroup, process string
	pid             int
}

// parseKill parses the line of the kernel that says why it killed a process. The name of the process may contain any
// character, so that it is between the first "task=" and the last "pid=" (mm/oom_kill.c).
func parseKill(text string) (k kill, ok bool) {
	rest, ok := strings.CutPrefix(text, "oom-kill:constraint=")
	if !ok {
		return k, false
	}
	before, rest, ok := strings.Cut(rest, ",task_memcg=")
	if !ok {
		return k, false
	}
	_, k.limited, _ = strings.Cut(before, ",oom_memcg=")
	if k.cgroup, rest, ok = strings.Cut(rest, ",task="); !ok {
		return k, false
	}
	at := strings.LastIndex(rest, ",pid=")
	if at < 0 {
		return k, false
	}
	k.process = rest[:at]
	number, _, _ := strings.Cut(rest[at+len(",pid="):], ",")
	pid, err := strconv.Atoi(number)
	k.pid = pid
	return k, err == nil
}

// scope says whose memory ran out. limited is the owner of the cgroup that reached its limit, or nil if it belongs to
// no pod. ours says that the process belonged to a pod. ok is false if no pod is concerned.
func (k kill) scope(limited *Owner, ours bool) (s Scope, ok bool) {
	switch {
	case k.limited == "":
		return OfMachine, true
	case limited != nil && limited.Container != "":
		return OfContainer, true
	case limited != nil:
		return OfPod, true
	default:
		return OfPods, ours
	}
}

// maxCauses is how many containers a Log remembers the causes of.
const maxCauses = 256

// causes has the cause of the last kill in each container, of the last maxCauses containers.
type causes struct {
	texts map[string]string // by container ID
	order []string          // IDs, oldest first
}

func (c *causes) add(id, text string) {
	if _, known := c.texts[id]; !known {
		if c.order = append(c.order, id); len(c.order) > maxCauses {
			delete(c.texts, c.order[0])
			c.order = c.order[1:]
		}
	}
	c.texts[id] = text
}

// because says why a process was killed.
func (s Scope) because(limited *Owner) string {
	switch s {
	case OfContainer:
		return "container " + limited.Container + " reached its memory limit"
	case OfPod:
		return "the pod reached its memory limit"
	case OfPods:
		return "the pods of the node together reached their memory limit"
	default:
		return "the machine is out of memory"
	}
}
