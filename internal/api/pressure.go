package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pressure says how far the node is from evicting pods. Amounts are in bytes, inodes or processes.
type Pressure struct {
	metav1.TypeMeta `json:",inline"`
	// Signals are the signals with a threshold.
	Signals []Signal `json:"signals"`
	// Orders are the orders of eviction, if the request wants them.
	Orders []EvictionOrder `json:"orders,omitempty"`
	// Problem says why signals are missing.
	Problem string `json:"problem,omitempty"`
}

// Signal is an amount that is available on the node, with its thresholds.
type Signal struct {
	// Name is the name that KubeletConfiguration has for it, such as memory.available.
	Name      string `json:"name"`
	Available int64  `json:"available"`
	Capacity  int64  `json:"capacity"`
	// ChangePerSecond is by how much Available changes, negative if it falls. It is missing until two looks are known.
	ChangePerSecond *float64    `json:"changePerSecond,omitempty"`
	Thresholds      []Threshold `json:"thresholds"`
}

// Threshold is the amount below which pods are evicted.
type Threshold struct {
	Limit int64 `json:"limit"`
	// Distance is the amount that is available above the limit. It is negative when the signal is short.
	Distance int64 `json:"distance"`
	// GracePeriod is how long the signal has to be short before pods end. It is missing for a hard threshold.
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
}

// EvictionOrder is the order of eviction for some signals.
type EvictionOrder struct {
	Signals []string `json:"signals"`
	// Pods are sorted: the first one would end first. Pods that are never evicted come last.
	Pods []EvictionCandidate `json:"pods"`
}

// EvictionCandidate is a pod that runs, with its use of what a signal counts.
type EvictionCandidate struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Priority  int32  `json:"priority"`
	// Usage is missing if it could not be measured.
	Usage   *int64 `json:"usage,omitempty"`
	Request int64  `json:"request"`
	// Critical pods are never evicted. Ending pods end already. Victims would be evicted now.
	Critical bool `json:"critical,omitempty"`
	Ending   bool `json:"ending,omitempty"`
	Victim   bool `json:"victim,omitempty"`
}
