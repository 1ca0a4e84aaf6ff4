package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Containers in Restart restart at once, regardless of the restart policy. Init containers never do.
func TestRestartForResources(t *testing.T) {
	const why = ": Container app resize requires restart"
	kill, start := []string{"app0" + why}, []string{"app #1 after 0s"}
	onFailure := spec(corev1.RestartPolicyOnFailure, apps("app"))
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		seen *pod.Observed
		id   string
		want want
	}{
		"it runs":                 {onFailure, one(running("app")), "app0", want{Sandbox: keep, Kill: kill}},
		"it was stopped for that": {onFailure, one(exited("app", 0)), "app0", want{Sandbox: keep, Start: start}},
		"it was killed for that": {onFailure, one(again(exited("app", 137), 0, 0)), "app0",
			want{Sandbox: keep, Start: start}},
		"another one was to restart": {onFailure, one(running("app")), "app9", want{Sandbox: keep}},
		"an init container": {spec(corev1.RestartPolicyAlways, inits("app"), apps("main")), one(running("app")), "app0",
			want{Sandbox: keep, Waiting: []string{"main: PodInitializing"}}},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, Input{Pod: c.pod, Observed: c.seen, Restart: map[string]bool{c.id: true}}, c.want)
		})
	}
}
