package api

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The verdicts of an Explanation.
const (
	Admitted = "admitted"
	NotYet   = "not yet"
	Blocked  = "blocked"
	Rejected = "rejected"
	// Invalid means that the manifest is not a valid pod, so no admission rule ran.
	Invalid = "invalid"
)

// Explanation is the result that admission would have for a pod now.
type Explanation struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Answer    `json:",inline"`
	// Preempt lists the pods that would end to make room, as namespace/name.
	Preempt []string `json:"preempt,omitempty"`
	// Replaces is the pod that this one would replace, as namespace/name.
	Replaces string `json:"replaces,omitempty"`
	// Rules are the results of the admission rules, in the order of their execution.
	Rules []RuleAnswer `json:"rules,omitempty"`
	// Gets lists the resources that an admitted pod would hold exclusively.
	Gets []Grant `json:"gets,omitempty"`
}

// Answer is the result of one admission rule, or of all of them.
type Answer struct {
	// Verdict is admitted, not yet, blocked, rejected or invalid.
	Verdict string `json:"verdict"`
	// Reason is the Kubernetes reason why the pod is not admitted.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Until is when the pod stops waiting at the latest, if that is known.
	Until *metav1.Time `json:"until,omitempty"`
}

// RuleAnswer is the result of one admission rule.
type RuleAnswer struct {
	Rule   string `json:"rule"`
	Answer `json:",inline"`
}

// Grant lists the resources that a container, or a pod as a whole, holds exclusively.
type Grant struct {
	// Container is empty for resources that the whole pod holds.
	Container string `json:"container,omitempty"`
	// CPUs is a list in the format of cpuset(7), such as 2-3,8.
	CPUs string `json:"cpus,omitempty"`
	// Memory lists the memory that is reserved on NUMA nodes.
	Memory []MemoryGrant `json:"memory,omitempty"`
	// Devices maps a resource name to the ids of its devices.
	Devices map[string][]string `json:"devices,omitempty"`
}

// MemoryGrant is an amount of memory, or of huge pages, from a group of NUMA nodes.
type MemoryGrant struct {
	Nodes    []int  `json:"nodes"`
	Resource string `json:"resource"`
	Bytes    int64  `json:"bytes"`
}

// ExplanationList is the answer to an explain, in the order of the manifests.
type ExplanationList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Explanation `json:"items"`
}
