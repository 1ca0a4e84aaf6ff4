package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Usage is what pods use.
type Usage struct {
	metav1.TypeMeta `json:",inline"`
	// Time is when it was measured.
	Time metav1.Time `json:"time"`
	// Pods has the pods by UID.
	Pods map[types.UID]PodUsage `json:"pods"`
}

// PodUsage is what one pod uses. An unknown value is missing.
type PodUsage struct {
	CPU    *uint64 `json:"cpu,omitempty"`    // in billionths of a CPU, on average since the measurement before
	Memory *uint64 `json:"memory,omitempty"` // working set, in bytes
}
