package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// Policy says when pods are evicted, and how.
type Policy struct {
	// Thresholds are of evictionHard, evictionSoft, evictionSoftGracePeriod and evictionMinimumReclaim.
	Thresholds []Threshold
	// Transition is evictionPressureTransitionPeriod: how long a condition stays after its last cause. Default 5 min.
	Transition time.Duration
	// MaxGrace is evictionMaxPodGracePeriod: the longest grace period at a soft threshold. Default 0.
	MaxGrace time.Duration
}

// ReadPolicy reads the policy of a configuration, which has its defaults. limited says that the memory of all pods
// together is limited.
func ReadPolicy(kc *v1beta1.KubeletConfiguration, limited bool) (Policy, field.ErrorList) {
	p := Policy{Transition: kc.EvictionPressureTransitionPeriod.Duration,
		MaxGrace: time.Duration(kc.EvictionMaxPodGracePeriod) * time.Second}
	var faults field.ErrorList
	p.Thresholds, faults = Parse(Settings{
		Hard: kc.EvictionHard, Soft: kc.EvictionSoft, SoftGracePeriod: kc.EvictionSoftGracePeriod,
		MinimumReclaim: kc.EvictionMinimumReclaim, Allocatable: limited,
	})
	if p.Transition < 0 {
		faults = append(faults, field.Invalid(field.NewPath("evictionPressureTransitionPeriod"), p.Transition.String(),
			"must not be negative"))
	}
	if p.MaxGrace < 0 {
		faults = append(faults, field.Invalid(field.NewPath("evictionMaxPodGracePeriod"), kc.EvictionMaxPodGracePeriod,
			"must not be negative"))
	}
	return p, faults
}

// Of returns the policy for the signals of some conditions.
func (p Policy) Of(conditions ...corev1.NodeConditionType) Policy {
	p.Thresholds = slices.DeleteFunc(slices.Clone(p.Thresholds), func(t Threshold) bool {
		return !slices.Contains(conditions, t.Signal.Condition())
	})
	return p
}
