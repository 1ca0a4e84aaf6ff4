package condition

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind names the subject of a fact. One part of the agent reports each kind.
type Kind string

const (
	// Runtime is set each time the container runtime answers, with a problem if it is not ready. If it is not set for
	// RuntimeSilence, the runtime counts as down.
	Runtime Kind = "runtime"
	// Network has a problem while pods cannot get a network. The node is not ready until it is set.
	Network Kind = "network"
	// PodLifecycle has a problem while the agent does not notice container changes. It is about the whole loop, never
	// about one pod.
	PodLifecycle Kind = "pod lifecycle"
	// Storage has a problem while the node's CSINode object is not up to date.
	Storage Kind = "storage"
	// Shutdown has a problem while the machine is shutting down.
	Shutdown Kind = "shutdown"
	// MemoryPressure has a problem while the node is low on memory.
	MemoryPressure Kind = "memory pressure"
	// DiskPressure has a problem while a file system of the node is almost full.
	DiskPressure Kind = "disk pressure"
	// PIDPressure has a problem while the node is low on process IDs.
	PIDPressure Kind = "PID pressure"
	// PodRange has a problem while the addresses of pods overlap with another network of the machine. The node has a
	// condition for it once there was a problem.
	PodRange Kind = "pod range"
)

// RuntimeSilence is how long the runtime may stay silent before it counts as down (the kubelet's
// maxWaitForContainerRuntime).
const RuntimeSilence = 30 * time.Second

// Fact is the last report about one kind.
type Fact struct {
	// Problem is a text for Ready's message. "" means well.
	Problem string
	// Well is the time of the last report without a problem. Zero: there was none.
	Well time.Time
	// Since is the time of the first report, or of the last one that made or ended a problem.
	Since time.Time
}

// Facts are the last reports by kind.
type Facts map[Kind]Fact

// pressure describes a condition that is False when all is well.
type pressure struct {
	kind                    Kind
	of                      corev1.NodeConditionType
	reason, message         string // under pressure
	wellReason, wellMessage string
}

func pressures() []pressure {
	return []pressure{
		{MemoryPressure, corev1.NodeMemoryPressure, "KubeletHasInsufficientMemory",
			"kubelet has insufficient memory available",
			"KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{DiskPressure, corev1.NodeDiskPressure, "KubeletHasDiskPressure", "kubelet has disk pressure",
			"KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{PIDPressure, corev1.NodePIDPressure, "KubeletHasInsufficientPID", "kubelet has insufficient PID available",
			"KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	}
}

// pressureConditions returns the pressure conditions without times, in the order of pressures.
func pressureConditions(f Facts) (all []corev1.NodeCondition) {
	for _, p := range pressures() {
		c := corev1.NodeCondition{Type: p.of, Status: corev1.ConditionFalse, Reason: p.wellReason,
			Message: p.wellMessage}
		if f[p.kind].Problem != "" {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, p.reason, p.message
		}
		all = append(all, c)
	}
	return all
}

// Decide computes the conditions of this package, with Ready last. A condition keeps its previous transition time if
// its status is the same. Conditions of other types in before are ignored.
func Decide(f Facts, before []corev1.NodeCondition, now time.Time) []corev1.NodeCondition {
	all := pressureConditions(f)
	if c, ok := podRange(f); ok {
		all = append(all, c)
	}
	all = append(all, ready(f, now))
	for i := range all {
		c := &all[i]
		c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		if was := find(before, c.Type); was != nil && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	return all
}

// PodRangeOverlap is the type of the condition for PodRange. A kubelet does not have it.
const PodRangeOverlap corev1.NodeConditionType = "PodRangeOverlap"

func podRange(f Facts) (c corev1.NodeCondition, ok bool) {
	fact, ok := f[PodRange]
	if fact.Problem != "" {
		return corev1.NodeCondition{Type: PodRangeOverlap, Status: corev1.ConditionTrue, Reason: "NetworksOverlap",
			Message: fact.Problem}, ok
	}
	return corev1.NodeCondition{Type: PodRangeOverlap, Status: corev1.ConditionFalse, Reason: "NoOverlap",
		Message: "pod addresses overlap with no other network"}, ok
}

func ready(f Facts, now time.Time) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady", Message: "kubelet is posting ready status",
	}
	switch all := problems(f, now); {
	case len(all) == 1:
		c.Message = all[0]
	case len(all) > 1:
		c.Message = "[" + strings.Join(all, ", ") + "]"
	}
	if c.Message != "kubelet is posting ready status" {
		c.Status, c.Reason = corev1.ConditionFalse, "KubeletNotReady"
	}
	return c
}

// problems lists why the node is not ready, without duplicates.
func problems(f Facts, now time.Time) (all []string) {
	add := func(problem string) {
		if problem != "" && !slices.Contains(all, problem) {
			all = append(all, problem)
		}
	}
	switch runtime := f[Runtime]; {
	case runtime.Well.IsZero():
		add("container runtime status check may not have completed yet")
	case now.Sub(runtime.Well) >= RuntimeSilence:
		add("container runtime is down")
	}
	if p := f[PodLifecycle].Problem; p != "" {
		add("PLEG is not healthy: " + p)
	}
	add(f[Runtime].Problem)
	if network, ok := f[Network]; !ok {
		add("network state unknown")
	} else {
		add(network.Problem)
	}
	add(f[Storage].Problem)
	add(f[Shutdown].Problem)
	return all
}

// nextChange returns when the conditions change without a new fact. ok is false if they do not.
func nextChange(f Facts, now time.Time) (at time.Time, ok bool) {
	well := f[Runtime].Well
	if well.IsZero() || now.Sub(well) >= RuntimeSilence {
		return time.Time{}, false
	}
	return well.Add(RuntimeSilence), true
}

// Same reports whether two lists of conditions are equal except for heartbeats.
func Same(a, b []corev1.NodeCondition) bool {
	if len(a) != len(b) {
		return false
	}
	for _, c := range a {
		other := find(b, c.Type)
		if other == nil || c.Status != other.Status || c.Reason != other.Reason || c.Message != other.Message ||
			!c.LastTransitionTime.Equal(&other.LastTransitionTime) {
			return false
		}
	}
	return true
}

// Events returns the reasons of the events for a change of conditions, as the kubelet names them. A pressure condition
// that did not exist before counts as changed.
func Events(before, after []corev1.NodeCondition) (reasons []string) {
	names := map[corev1.NodeConditionType][2]string{
		corev1.NodeMemoryPressure: {"NodeHasSufficientMemory", "NodeHasInsufficientMemory"},
		corev1.NodeDiskPressure:   {"NodeHasNoDiskPressure", "NodeHasDiskPressure"},
		corev1.NodePIDPressure:    {"NodeHasSufficientPID", "NodeHasInsufficientPID"},
		corev1.NodeReady:          {"NodeNotReady", "NodeReady"},
	}
	for _, c := range after {
		name, ours := names[c.Type]
		was := find(before, c.Type)
		if !ours || was == nil && c.Type == corev1.NodeReady || was != nil && was.Status == c.Status {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			reasons = append(reasons, name[1])
		} else {
			reasons = append(reasons, name[0])
		}
	}
	return reasons
}

// find returns the condition of a type, or nil.
func find(all []corev1.NodeCondition, of corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range all {
		if all[i].Type == of {
			return &all[i]
		}
	}
	return nil
}
