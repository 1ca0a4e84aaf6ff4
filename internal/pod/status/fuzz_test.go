package status

import (
	"testing"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// FuzzRecord reads the last status of a pod and computes the next one from it.
func FuzzRecord(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "u1.json", Version: 1,
		Seeds: []string{
			`{"key":"u1","value":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],` +
				`"startTime":"2026-03-01T12:00:00Z","containerStatuses":[{"name":"app",` +
				`"containerID":"containerd://a1","restartCount":3,` +
				`"state":{"running":{"startedAt":"2026-03-01T12:00:00Z"}}}]}}`,
			`{"key":"u1","value":{"phase":"Failed","containerStatuses":[{"name":"app"},` +
				`{"name":"app","restartCount":-1}]}}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			r := NewRecord(RecordOptions{Dir: dir})
			err := r.Load()
			state = checkpointtest.Show(r.Last("u1"))
			next := podstatus.Compute(podstatus.Input{Pod: newPod("u1"), Previous: r.Last("u1"), Node: node, Now: now,
				Observed: observedOf(running("a1"))})
			if len(next.ContainerStatuses) != 1 || next.ContainerStatuses[0].Name != "app" {
				t.Errorf("the pod has one container, its status %+v", next.ContainerStatuses)
			}
			return state, checkpointtest.Text(err)
		},
	})
}
