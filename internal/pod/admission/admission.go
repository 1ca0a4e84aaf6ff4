package admission

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
)

// Verdict is the kind of an answer.
type Verdict int

// The verdicts, the later the stronger.
const (
	Admitted Verdict = iota
	NotYet
	// Blocked is soft: the node as it is cannot give what the pod asks for. It
	// stays Pending, and starts when another agent finds that the node can.
	Blocked
	Rejected
)

func (v Verdict) String() string {
	return [...]string{"admitted", "not yet", "blocked", "rejected"}[v]
}

// Answer of a rule, or of all of them. The zero value admits.
type Answer struct {
	Verdict Verdict
	// Reason is Kubernetes' word for what speaks against the pod, e.g. OutOfcpu.
	Reason string
	// Message says it in a sentence; with NotYet, what is waited for.
	Message string
	// Until is when what is waited for is over at the latest; zero: not known.
	Until time.Time
	// Preempt are pods that have to end to make room for this one, which is
	// critical; Reserve says that what will be free is for it. With NotYet only.
	Preempt []types.UID
	Reserve bool
}

func reject(reason, format string, args ...any) Answer {
	return Answer{Verdict: Rejected, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func block(reason, format string, args ...any) Answer {
	return Answer{Verdict: Blocked, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// In is everything that admission depends on. Nothing in it is changed.
type In struct {
	Pod  *corev1.Pod
	Node node.Facts
	// Admitted are the pods that hold resources of the node. The pod itself, if
	// it is among them, is not counted against it.
	Admitted []PodInfo
	// RuntimeClass finds a class; the error of one that is not there is
	// *object.Missing. nil: there are none.
	RuntimeClass func(name string) (*nodev1.RuntimeClass, error)
	// Supplied says that a manifest gives an object; nil: none does.
	Supplied func(object.Key) bool
	// Devices are what device plugins offer now.
	Devices device.Inventory
	// Offered is what the Node object says to be allocatable: of what no device
	// plugin here has ever offered it is what somebody else has written there.
	Offered corev1.ResourceList
	// PluginsBy is until when a device plugin that has not registered is waited
	// for; Now is the time.
	PluginsBy, Now time.Time
	// Given is what the pod holds already, from an earlier agent.
	Given resource.Allocation
	// Allot decides what the pod is given for itself of CPUs, memory and devices
	// beside these pods, in words of resource.Decide, and books nothing. Its error
	// carries the kubelet's reason. nil: this node gives nothing away.
	Allot  func(beside []types.UID) (resource.Allocation, error)
	Config Config
}

// PodInfo is a pod that holds resources.
type PodInfo struct {
	Pod *corev1.Pod
	// Terminating: what it holds will be free.
	Terminating bool
	// EndsBy is when a terminating pod is gone at the latest; zero: not known.
	EndsBy time.Time
}

// others are the admitted pods but the one asked about.
func (in In) others() []PodInfo {
	all := make([]PodInfo, 0, len(in.Admitted))
	for _, o := range in.Admitted {
		if o.Pod.UID != in.Pod.UID {
			all = append(all, o)
		}
	}
	return all
}

// Config is what the agent's configuration and its runtime say.
type Config struct {
	// NodeUnknown: the Node object has not been heard of, so that its labels and
	// taints are not known, and this is a pod that the node had accepted when it was.
	NodeUnknown bool
	// NodeOld: the labels of the Node may be older than the pod, which comes to
	// the agent by a watch of its own, so that they do not speak against it.
	NodeOld bool
	// Standalone agents have no control plane.
	Standalone bool
	// Taints are the node's.
	Taints []corev1.Taint
	// UnsafeSysctls are allowedUnsafeSysctls: names, or prefixes that end in *.
	UnsafeSysctls []string
	// Handlers are the runtime's, by name; nil when it does not say.
	Handlers []string
	// AppArmor says that the host enforces it.
	AppArmor bool
	// SupplementalGroupsPolicy says that the runtime supports Strict (KEP-3619).
	SupplementalGroupsPolicy bool
	// NoSELinux says why the labels that a pod asks for are not given on a host
	// that has SELinux; "" if they are, or there is none.
	NoSELinux string
	// NoUserNamespaces says why pods cannot have their own; "" if they can.
	NoUserNamespaces string
	// Declared are the features of the Node object (status.declaredFeatures).
	Declared []string
}

// Rule is one thing that a pod has to comply with.
type Rule struct {
	Name string
	// Reasons are those that it gives, and Doc is what it asks, for docs/admission.md.
	Reasons []string
	Doc     string
	Check   func(In) Answer
}

// Rules are asked in this order: what only another manifest can cure comes
// before what the node lacks.
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
		{"sysctls", []string{SysctlForbidden},
			"rejects sysctls that are neither safe nor in `allowedUnsafeSysctls`, and those of a namespace that " +
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
		{"runtimeClass", []string{RuntimeClass},
			"has a pod wait for its RuntimeClass and its handler; rejects one that contradicts the class",
			checkRuntimeClass},
		{"manifestObjects", []string{ManifestObject},
			"in a cluster, has a pod of a manifest wait until manifests give the ConfigMaps, Secrets and claims that " +
				"it needs: it does not get the cluster's", checkObjects},
		{"nodeName", []string{NodeName}, "rejects a pod that is for another node", checkNodeName},
		{"nodeAffinity", []string{NodeAffinity},
			"rejects a pod whose `nodeSelector` or required node affinity the node's labels do not match, in a " +
				"cluster after the API server has confirmed them", checkNodeAffinity},
		{"taints", []string{TaintToleration},
			"rejects a pod that does not tolerate a taint of the Node, or without a cluster of `registerWithTaints`, " +
				"with the effect NoExecute; static pods are not asked", checkTaints},
		{"name", []string{SameName}, "has a pod wait while an earlier one of its name ends", checkName},
		{"hostPorts", []string{NodePorts},
			"rejects a pod whose host port another one has, and has it wait while that one ends", checkHostPorts},
		{"resources", []string{"OutOfpods", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOf*RESOURCE*"},
			"counts what pods request against what is allocatable: waits for pods that end and for device plugins, " +
				"has critical pods preempt others, or rejects", checkResources},
		{"topology", []string{TopologyAffinityError, SMTAlignmentError, EmptyPodSharedPool, UnexpectedAdmissionError},
			"decides which CPUs, memory and devices the pod has for itself: waits for those of pods that " +
				"end, or rejects", checkTopology},
	}
}

// Trace is what one rule said.
type Trace struct {
	Rule   string
	Answer Answer
}

// Admit asks all rules. The first rejection is the answer, else the first block,
// else the first "not yet": there is no use in waiting for a pod that is
// rejected then.
func Admit(in In) (Answer, []Trace) {
	rules := Rules()
	traces := make([]Trace, len(rules))
	answer := Answer{}
	for i, r := range rules {
		a := r.Check(in)
		traces[i] = Trace{r.Name, a}
		if a.Verdict > answer.Verdict {
			answer = a
		}
	}
	if slices.ContainsFunc(traces, func(t Trace) bool { return t.Answer.Verdict != Admitted && !t.Answer.Reserve }) {
		answer.Preempt, answer.Reserve = nil, false // nobody has to go for a pod that something else holds back
	}
	return answer, traces
}
