package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/worker"
)

// A pod that runs as generation 1 while its source wants generation 2.
func TestPlaceShowsTheNewestGeneration(t *testing.T) {
	version := func(generation int64) *pod.Pod {
		return &pod.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: generation}}}
	}
	for name, c := range map[string]struct {
		state worker.State
		want  int64
	}{
		"a resize waits":            {want: 2},
		"it ends after a deletion":  {worker.State{Stop: &pod.Stop{}}, 0},
		"it has ended":              {worker.State{Stop: &pod.Stop{}, Stage: worker.Cleaning}, 2},
		"it has ended and is clean": {worker.State{Stop: &pod.Stop{}, Stage: worker.Terminated}, 2},
	} {
		in := place(fleet.Member{Pod: version(1), Desired: version(2), Working: true, State: c.state})
		if in.Generation != c.want {
			t.Errorf("%s: generation %d, want %d", name, in.Generation, c.want)
		}
	}
}
