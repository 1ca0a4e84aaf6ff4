package admission

import (
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
)

// Verdict is the kind of an answer. A later constant outweighs an earlier one.
type Verdict int

const (
	// Admitted lets the pod run.
	Admitted Verdict = iota
	// NotYet lets the pod wait, and asks again.
	NotYet
	// Blocked means that this node, as it is now, cannot fulfil a request of the pod. The pod stays Pending, and starts
	// when the node can.
	Blocked
	// Rejected fails the pod.
	Rejected
)

func (v Verdict) String() string {
	return [...]string{"admitted", "not yet", "blocked", "rejected"}[v]
}

// Answer is the answer of one rule, or of all rules together. The zero value admits.
type Answer struct {
	Verdict Verdict
	// Reason is the kubelet's word for the objection, such as OutOfcpu.
	Reason string
	// Message explains the reason in a sentence. With NotYet, it names the thing that the pod waits for.
	Message string
	// Until is the latest end of the wait; zero if that is unknown.
	Until time.Time
	// Preempt lists the pods that must end to make room for this one, which is critical. Reserve says that the
	// resources they free are kept for it. Both come with NotYet only.
	Preempt []types.UID
	Reserve bool
}

func reject(reason, format string, args ...any) Answer {
	return Answer{Verdict: Rejected, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func block(reason, format string, args ...any) Answer {
	return Answer{Verdict: Blocked, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// In is everything that admission depends on. The rules do not change it.
type In struct {
	Pod  *corev1.Pod
	Node node.Facts
	// Admitted lists the pods that hold resources of the node. The pod itself may be among them; it is not counted
	// twice.
	Admitted []PodInfo
	// RuntimeClass finds a class. The error for a class that does not exist is *object.Missing. nil: there are no
	// classes.
	RuntimeClass func(name string) (*nodev1.RuntimeClass, error)
	// Supplied reports whether a manifest supplies an object. nil: no manifest does.
	Supplied func(object.Key) bool
	// Devices are the devices that device plugins offer now.
	Devices device.Inventory
	// Offered is the allocatable of the Node object. For a resource that no device plugin of this node has offered, it
	// holds what another controller wrote there.
	Offered corev1.ResourceList
	// PluginsBy is the time until which a pod waits for a device plugin to register. Now is the current time.
	PluginsBy, Now time.Time
	// Pressure lists the pressure conditions of the node.
	Pressure []corev1.NodeConditionType
	// Running says that the pod's sandbox or containers run already. Nothing then holds the pod back that matters only
	// for a start: a waiting pod has no probes and no restarts. The agent asks again before each start.
	Running bool
	// Given lists the resources that the pod holds already, since an earlier agent admitted it.
	Given resource.Allocation
	// Allot returns the CPUs, memory and devices that the pod would get for itself beside these pods (resource.Decide).
	// It allocates nothing. Its error carries the kubelet's reason. nil: this node has no allocator.
	Allot  func(beside []types.UID) (resource.Allocation, error)
	Config Config
}

// PodInfo is a pod that holds resources.
type PodInfo struct {
	Pod *corev1.Pod
	// Terminating: its resources will be free soon.
	Terminating bool
	// EndsBy is the latest end of a terminating pod; zero if that is unknown.
	EndsBy time.Time
	// Requests are RequestsOf(Pod), for a caller that keeps them from one question to the next. The rules compute them
	// if they are unknown.
	Requests Requests
}

// others returns the admitted pods without the pod itself.
func (in In) others() iter.Seq[PodInfo] {
	return func(yield func(PodInfo) bool) {
		for _, o := range in.Admitted {
			if o.Pod.UID != in.Pod.UID && !yield(o) {
				return
			}
		}
	}
}

// Config is the part of In that depends on the agent, its runtime and its Node object.
type Config struct {
	// NodeUnknown: the agent has not read the Node object yet, so that its labels and taints are unknown. The pod was
	// accepted by this node earlier.
	NodeUnknown bool
	// NodeOld: the labels of the Node may be older than the pod, because each comes by its own watch. They are no
	// ground for a rejection then.
	NodeOld bool
	// Standalone: the agent has no control plane.
	Standalone bool
	// StaticCritical: every static pod is critical, whatever its priority.
	StaticCritical bool
	// Taints are the taints of the node.
	Taints []corev1.Taint
	// UnsafeSysctls are allowedUnsafeSysctls: names, or prefixes that end in *.
	UnsafeSysctls []string
	// Handlers lists the names of the runtime's handlers; nil if the runtime does not report them.
	Handlers []string
	// AppArmor is set if the host enforces AppArmor profiles.
	AppArmor bool
	// SupplementalGroupsPolicy is set if the runtime supports the policy Strict (KEP-3619).
	SupplementalGroupsPolicy bool
	// NoSELinux is the reason why the runtime sets no SELinux labels on a host that has SELinux; "" if it sets them, or
	// the host has no SELinux.
	NoSELinux string
	// NoUserNamespaces is the reason why pods cannot have their own user namespaces; "" if they can.
	NoUserNamespaces string
	// NoPrivileges is the reason why containers cannot be privileged; "" if they can.
	NoPrivileges string
	// NoProc is the reason why pods with their own user namespaces cannot have a /proc; "" if they can.
	NoProc string
	// NoPodLevel: the node supports no pod-level resources (feature gate PodLevelResources: false).
	NoPodLevel bool
	// OwnReferences: pods of manifests may name objects of the API server (feature gate PreventStaticPodAPIReferences:
	// false).
	OwnReferences bool
	// Declared lists the features of the Node object (status.declaredFeatures, KEP-5328).
	Declared []string
}

// Rule is one condition that a pod must meet.
type Rule struct {
	Name string
	// Reasons lists the reasons that the rule gives. Doc describes the rule for docs/admission.md.
	Reasons []string
	Doc     string
	Check   func(In) Answer
}

// Rules lists the rules in their order: an objection that only another manifest can cure comes before a resource that
// the node lacks.
func Rules() []Rule {
	return []Rule{
		{"os", []string{PodOSSelectorNodeLabelDoesNotMatch, PodOSNotSupported},
			"rejects a pod whose label `kubernetes.io/os` or `spec.os` is of another operating system", checkOS},
		{"fields", []string{UnsupportedField},
			"rejects a pod that sets a field which this agent does not act on ([pod-fields.md](pod-fields.md))",
			checkFields},
		{"features", []string{PodFeatureUnsupported},
			"rejects a pod that needs a feature of nodes which this one does not declare " +
				"(`status.declaredFeatures`): user namespaces in the host's network", checkFeatures},
		{"podLevelResources", []string{PodLevelResourcesNotSupported},
			"rejects a pod with `spec.resources` if the feature gate PodLevelResources is false", checkPodLevel},
		{"sysctls", []string{SysctlForbidden},
			"rejects sysctls that are neither safe nor in `allowedUnsafeSysctls`, and sysctls of a namespace that " +
				"is the host's", checkSysctls},
		{"apparmor", []string{AppArmor},
			"blocks a pod that asks for an AppArmor profile on a host without AppArmor; rejects one of the cluster",
			checkAppArmor},
		{"selinux", []string{SELinuxNotSupported},
			"blocks a pod that asks for SELinux labels where the runtime sets none", checkSELinux},
		{"supplementalGroups", []string{SupplementalGroupsPolicyNotSupported},
			"blocks a pod with `supplementalGroupsPolicy: Strict` while the runtime cannot do it; rejects one of " +
				"the cluster", checkGroupsPolicy},
		{"userNamespaces", []string{UserNamespacesNotSupported},
			"blocks a pod with `hostUsers: false` while kernel, file system or runtime cannot do it",
			checkUserNamespaces},
		{"privileged", []string{PrivilegedNotSupported},
			"blocks a pod with a privileged container while the agent lacks capabilities that such a container is for",
			checkPrivileged},
		{"procMount", []string{ProcMountNotSupported},
			"blocks a pod with `hostUsers: false`, which `procMount: Unmasked` needs, while a mount hides a part of " +
				"the agent's /proc: the kernel then refuses to mount /proc in a user namespace", checkProcMount},
		{"runtimeClass", []string{RuntimeClass},
			"lets a pod wait for its RuntimeClass and its handler; rejects a pod that contradicts the class",
			checkRuntimeClass},
		{"manifestObjects", []string{ManifestObject},
			"in a cluster, lets a pod of a manifest wait until manifests supply the ConfigMaps, Secrets and claims " +
				"that it needs: it does not get the cluster's", checkObjects},
		{"nodeName", []string{NodeName}, "rejects a pod whose `spec.nodeName` is another node", checkNodeName},
		{"nodeAffinity", []string{NodeAffinity},
			"rejects a pod whose `nodeSelector` or required node affinity the node's labels do not match, in a " +
				"cluster after the API server has confirmed them", checkNodeAffinity},
		{"taints", []string{TaintToleration},
			"rejects a pod that does not tolerate a taint of the Node, or without a cluster of `registerWithTaints`, " +
				"with the effect NoExecute; static pods run in any case", checkTaints},
		{"pressure", []string{reason.Evicted, NodePressure},
			"rejects pods, or without a cluster lets them wait, while the node is under pressure " +
				"([eviction.md](eviction.md))", checkPressure},
		{"name", []string{SameName}, "lets a pod wait while an earlier pod of its name ends", checkName},
		{"hostPorts", []string{NodePorts},
			"rejects a pod whose host port another pod uses; lets it wait while that pod ends", checkHostPorts},
		{"resources", []string{"OutOfpods", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOf*RESOURCE*"},
			"counts what pods request against what is allocatable: waits for pods that end and for device plugins, " +
				"lets critical pods preempt others, or rejects", checkResources},
		{"topology", []string{TopologyAffinityError, SMTAlignmentError, EmptyPodSharedPool, UnexpectedAdmissionError},
			"decides which CPUs, memory and devices the pod gets for itself: waits for the resources of pods " +
				"that end, or rejects", checkTopology},
	}
}

// Trace is the answer of one rule.
type Trace struct {
	Rule   string
	Answer Answer
}

// Admit asks all rules. The strongest verdict is the answer, and of equal ones the first: waiting would be useless for
// a pod that is rejected afterwards.
func Admit(in In) (Answer, []Trace) {
	rules := Rules()
	traces := make([]Trace, len(rules))
	answer := Answer{}
	for i, r := range rules {
		a := r.Check(in)
		if in.Running && a.Verdict == Blocked {
			a = Answer{}
		}
		traces[i] = Trace{r.Name, a}
		if a.Verdict > answer.Verdict {
			answer = a
		}
	}
	if slices.ContainsFunc(traces, func(t Trace) bool { return t.Answer.Verdict != Admitted && !t.Answer.Reserve }) {
		answer.Preempt, answer.Reserve = nil, false // no pod ends for one that something else holds back
	}
	return answer, traces
}
