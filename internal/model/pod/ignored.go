package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Ignored are the fields of pods that this node ignores, because their feature gates are false. As with a kubelet, a
// pod runs as if it did not have them.
type Ignored struct {
	EnvFiles       bool // the source fileKeyRef of environment variables (KEP-5278)
	RestartRules   bool // restartPolicy of app containers, and restartPolicyRules (KEP-5307)
	RestartAll     bool // the action RestartAllContainers of restartPolicyRules (KEP-5532)
	StopSignals    bool // stopSignal (KEP-4960)
	ExtendedClaims bool // extended resources from ResourceClaims (KEP-5004)
}

// Without returns a pod without the ignored fields. It returns the same pointer if the pod has none of them, and
// otherwise a copy.
func (i Ignored) Without(p *corev1.Pod) *corev1.Pod {
	if i == (Ignored{}) || !i.appliesTo(p) {
		return p
	}
	next := p.DeepCopy()
	for _, list := range [][]corev1.Container{next.Spec.InitContainers, next.Spec.Containers} {
		for n := range list {
			i.strip(&list[n])
		}
	}
	if i.RestartRules {
		for n := range next.Spec.Containers {
			next.Spec.Containers[n].RestartPolicy = nil
		}
		for n := range next.Spec.InitContainers {
			if c := &next.Spec.InitContainers[n]; !always(c) {
				c.RestartPolicy = nil
			}
		}
	}
	if i.ExtendedClaims {
		next.Status.ExtendedResourceClaimStatus = nil
	}
	return next
}

func always(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// strip removes the ignored fields of a container, except its restart policy.
func (i Ignored) strip(c *corev1.Container) {
	if i.EnvFiles {
		for n := range c.Env {
			if ofFile(c.Env[n]) {
				c.Env[n].ValueFrom = nil // the variable exists and is empty
			}
		}
	}
	if i.RestartRules {
		c.RestartPolicyRules = nil
	}
	if i.RestartAll {
		c.RestartPolicyRules = slices.DeleteFunc(c.RestartPolicyRules, restartsAll)
	}
	if i.StopSignals && c.Lifecycle != nil {
		c.Lifecycle.StopSignal = nil
	}
}

func ofFile(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil }

func restartsAll(r corev1.ContainerRestartRule) bool {
	return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// appliesTo reports whether a pod has an ignored field.
func (i Ignored) appliesTo(p *corev1.Pod) bool {
	if i.ExtendedClaims && p.Status.ExtendedResourceClaimStatus != nil {
		return true
	}
	return slices.ContainsFunc(Containers(p), func(c Container) bool {
		return i.EnvFiles && slices.ContainsFunc(c.Env, ofFile) ||
			i.RestartRules && (len(c.RestartPolicyRules) > 0 || c.RestartPolicy != nil && c.Kind != Sidecar) ||
			i.RestartAll && slices.ContainsFunc(c.RestartPolicyRules, restartsAll) ||
			i.StopSignals && c.Lifecycle != nil && c.Lifecycle.StopSignal != nil
	})
}
