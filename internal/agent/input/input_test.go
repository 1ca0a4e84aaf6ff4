package input

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
)

// A pod that is older than the agent waits for device plugins from the agent's start.
func TestPluginsBy(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	n := Node{Began: began}
	for name, test := range map[string]struct{ seen, want time.Time }{
		"an older pod": {began.Add(-time.Hour), began.Add(pluginPatience)},
		"a newer pod":  {began.Add(time.Minute), began.Add(time.Minute + pluginPatience)},
	} {
		if got := n.pluginsBy(test.seen); !got.Equal(test.want) {
			t.Errorf("%s: until %v, want %v", name, got, test.want)
		}
	}
}

// rounds counts the calls of Reconsider and of SetRuntimeStatus, and the calls of Retry for blocked containers.
type rounds struct{ asked, passed, retried int }

func (r *rounds) Reconsider() { r.asked++ }

func (r *rounds) Retry(matches func(error) bool) {
	if matches(reason.New(reason.Blocked, "")) && !matches(reason.New(reason.RunContainerError, "")) {
		r.retried++
	}
}

func (r *rounds) SetRuntimeStatus(*runtimeapi.StatusResponse) { r.passed++ }

// A runtime that is reconfigured while the agent runs unblocks the pods that wait for it. A runtime that loses a
// feature gets no container that needs it.
func TestRuntimeStatus(t *testing.T) {
	strict := corev1.SupplementalGroupsPolicyStrict
	p := &corev1.Pod{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{SupplementalGroupsPolicy: &strict}}}
	r, e := &rounds{}, &engine.Engine{}
	n, s := Node{Config: &config.Config{}, Engine: e}, RuntimeStatus{Engine: e, Fleet: r, Conditions: r}
	for i, step := range []struct {
		can    bool
		asked  int // in all
		reason string
	}{
		{false, 1, reason.Blocked}, {false, 1, reason.Blocked}, {true, 2, ""}, {true, 2, ""},
		{false, 3, reason.Blocked},
	} {
		s.SetRuntimeStatus(&runtimeapi.StatusResponse{
			Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: step.can}})
		if r.asked != step.asked || r.retried != step.asked || r.passed != i+1 {
			t.Errorf("step %d: %d calls of Reconsider, %d of Retry, %d of SetRuntimeStatus", i, r.asked, r.retried,
				r.passed)
		}
		if got := reason.Of(n.PreCreate(t.Context(), p, pod.Container{}, nil)); got != step.reason {
			t.Errorf("step %d: a container is refused with %q, want %q", i, got, step.reason)
		}
	}
}
