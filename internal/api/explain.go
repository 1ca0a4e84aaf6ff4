package api

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Verdicts of an Explanation.
const (
	Admitted = "admitted"
	NotYet   = "not yet"
	Blocked  = "blocked"
	Rejected = "rejected"
	// Invalid: the manifest stands for no pod, and no rule was asked.
	Invalid = "invalid"
)

// Explanation is what admission would say about a pod now.
type Explanation struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Answer    `json:",inline"`
	// Preempt are the pods that would end to make room: namespace/name.
	Preempt []string `json:"preempt,omitempty"`
	// Replaces is the pod in whose place it would run: namespace/name.
	Replaces string `json:"replaces,omitempty"`
	// Rules are in the order in which they are asked.
	Rules []RuleAnswer `json:"rules,omitempty"`
	// Gets is what an admitted pod would have for itself.
	Gets []Given `json:"gets,omitempty"`
}

// Answer is what one rule says, or all of them.
type Answer struct {
	// Verdict is admitted, not yet, blocked, rejected or invalid.
	Verdict string `json:"verdict"`
	// Reason is Kubernetes' word for what speaks against the pod.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Until is when what is waited for is over at the latest, if that is known.
	Until *metav1.Time `json:"until,omitempty"`
}

// RuleAnswer is what one rule says.
type RuleAnswer struct {
	Rule   string `json:"rule"`
	Answer `json:",inline"`
}

// Given is what a container, or a pod as a whole, has for itself.
type Given struct {
	// Container is empty for what the pod has as a whole.
	Container string `json:"container,omitempty"`
	// CPUs is a list such as 2-3,8.
	CPUs string `json:"cpus,omitempty"`
	// Memory is that of NUMA nodes.
	Memory []GivenMemory `json:"memory,omitempty"`
	// Devices are ids by resource.
	Devices map[string][]string `json:"devices,omitempty"`
}

// GivenMemory is an amount of memory, or of huge pages, of some NUMA nodes
// together.
type GivenMemory struct {
	Nodes    []int  `json:"nodes"`
	Resource string `json:"resource"`
	Bytes    int64  `json:"bytes"`
}

// ExplanationList answers an explain, in the order of the manifests.
type ExplanationList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Explanation `json:"items"`
}
