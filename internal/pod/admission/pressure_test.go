package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
)

func TestCheckPressure(t *testing.T) {
	memory := []corev1.NodeConditionType{corev1.NodeMemoryPressure}
	both := []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure}
	const (
		plain     = "containers: [{name: a}]"
		burstable = "containers: [{name: a, resources: {requests: {cpu: 1m}}}]"
		tolerant  = "tolerations: [{key: node.kubernetes.io/memory-pressure, effect: NoSchedule, operator: Exists}]\n" +
			plain
		critical = "priorityClassName: system-node-critical\n" + plain
	)
	waits := func(text string) Answer {
		return Answer{Verdict: NotYet, Reason: NodePressure, Message: "waiting for the end of " + text + " of the node"}
	}
	for name, test := range map[string]struct {
		spec                string
		pressure            []corev1.NodeConditionType
		running, standalone bool
		want                Answer
	}{
		"no pressure": {spec: plain},
		"memory, in a cluster": {spec: plain, pressure: memory,
			want: reject(reason.Evicted, "The node had condition: [MemoryPressure]. ")},
		"memory, standalone":     {spec: plain, pressure: memory, standalone: true, want: waits("MemoryPressure")},
		"memory, runs already":   {spec: plain, pressure: memory, running: true},
		"memory, with a request": {spec: burstable, pressure: memory},
		"memory, tolerated":      {spec: tolerant, pressure: memory},
		"memory and disk, tolerated": {spec: tolerant, pressure: both, standalone: true,
			want: waits("DiskPressure and MemoryPressure")},
		"memory and disk, with request": {spec: burstable, pressure: both,
			want: reject(reason.Evicted, "The node had condition: [DiskPressure MemoryPressure]. ")},
		"memory and disk, critical": {spec: critical, pressure: both},
	} {
		got := checkPressure(In{Pod: spec(t, test.spec), Pressure: test.pressure, Running: test.running,
			Config: Config{Standalone: test.standalone}})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
