package resource

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Decide says what a pod is given for itself beside what others hold. It changes
// nothing. A pod that holds something already keeps it as far as it fits what it
// asks for. The error is a *reason.Error with the kubelet's reason.
func Decide(_ Node, held Held, p *corev1.Pod) (Allocation, error) {
	return held[p.UID], nil
}

// fits says why an allocation cannot be kept on this machine beside what others
// hold.
func (n Node) fits(held Held, uid types.UID, a Allocation) error {
	others := maps.Clone(held)
	delete(others, uid)
	own := a.CPUs()
	if own.IsEmpty() {
		return nil
	}
	if !n.Policy.CPUs {
		return fmt.Errorf("it held CPUs %s, and the policy gives none away", own)
	}
	free := n.Shared(others)
	if gone := own.Difference(n.Shared(nil)); !gone.IsEmpty() {
		return fmt.Errorf("CPUs %s are not online", gone)
	}
	if taken := own.Difference(free); !taken.IsEmpty() {
		return fmt.Errorf("CPUs %s are held by another pod", taken)
	}
	if reserved := own.Intersection(n.Policy.ReservedCPUs); !reserved.IsEmpty() {
		return fmt.Errorf("CPUs %s are reserved", reserved)
	}
	return nil
}
