package aside

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/record/crash"
)

// recorded collects events: the object, the reason and the message of each.
type recorded []string

func (e *recorded) Event(ref corev1.ObjectReference, _, reason, format string, args ...any) {
	*e = append(*e, ref.Kind+"/"+ref.Name+" "+reason+": "+fmt.Sprintf(format, args...))
}

func TestAPanicOfThePreviousAgentIsReported(t *testing.T) {
	const where = "the previous agent ended with a panic at 2026-03-01T12:00:00Z: panic: x; its stack is in /c/1.txt"
	for name, c := range map[string]struct {
		subject string
		want    recorded
	}{
		"in the work on a pod": {"pod a/b uid=u", recorded{"Node/n1 AgentPanicked: " + where,
			"Pod/b AgentPanicked: the previous agent ended with a panic while it worked on this pod: panic: x; " +
				"its stack is in /c/1.txt"}},
		"elsewhere": {"", recorded{"Node/n1 AgentPanicked: " + where}},
	} {
		var events recorded
		r := New(Options{Events: &events, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		r.announce(crash.Report{Time: t0, File: "/c/1.txt", Cause: "panic: x", Subject: c.subject}, "n1")
		if d := cmp.Diff(c.want, events); d != "" {
			t.Errorf("%s: events (-want +got):\n%s", name, d)
		}
	}
}
