package pod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// A pod loses exactly the fields whose gates are off, and the pod that came in stays as it was.
func TestIgnoredFieldsAreRemoved(t *testing.T) {
	always, never, term := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.SIGTERM
	full := func() *corev1.Pod {
		rules := []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart},
			{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
		return &corev1.Pod{
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "sidecar", RestartPolicy: &always},
					{Name: "init", RestartPolicy: &never}},
				Containers: []corev1.Container{{
					Name: "app", RestartPolicy: &never, RestartPolicyRules: rules,
					Lifecycle: &corev1.Lifecycle{StopSignal: &term},
					Env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
						FileKeyRef: &corev1.FileKeySelector{Key: "k"}}}, {Name: "B", Value: "b"}},
				}},
			},
			Status: corev1.PodStatus{ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{}},
		}
	}
	for name, c := range map[string]struct {
		off    Ignored
		change func(*corev1.Pod)
	}{
		"nothing":   {Ignored{}, func(*corev1.Pod) {}},
		"env files": {Ignored{EnvFiles: true}, func(p *corev1.Pod) { p.Spec.Containers[0].Env[0].ValueFrom = nil }},
		"restart rules": {Ignored{RestartRules: true}, func(p *corev1.Pod) {
			p.Spec.InitContainers[1].RestartPolicy = nil
			p.Spec.Containers[0].RestartPolicy, p.Spec.Containers[0].RestartPolicyRules = nil, nil
		}},
		"restart of all": {Ignored{RestartAll: true}, func(p *corev1.Pod) {
			p.Spec.Containers[0].RestartPolicyRules = p.Spec.Containers[0].RestartPolicyRules[:1]
		}},
		"stop signals": {Ignored{StopSignals: true}, func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle.StopSignal = nil
		}},
		"extended claims": {Ignored{ExtendedClaims: true}, func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p, want := full(), full()
			c.change(want)
			got := c.off.Without(p)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(full(), p); diff != "" {
				t.Errorf("the pod that came in has changed (-before +after):\n%s", diff)
			}
			plain := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
			if c.off.Without(plain) != plain {
				t.Error("a pod without such fields was copied")
			}
		})
	}
}
