package power

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
)

func TestRefuse(t *testing.T) {
	down := reason.New("NodeShutdown", "the node is shutting down")
	for name, c := range map[string]struct {
		source pod.Source
		runs   bool
		err    error
		want   fleet.Verdict
		says   bool
	}{
		"the machine stays up": {source: pod.SourceAPI},
		"the API's": {source: pod.SourceAPI, err: down,
			want: fleet.Verdict{Reject: true, Reason: "NodeShutdown", Message: "the node is shutting down"},
			says: true},
		"a manifest's": {source: pod.SourceFile, err: down,
			want: fleet.Verdict{Reason: "NodeShutdown", Message: "the node is shutting down"}, says: true},
		"it runs":                  {source: pod.SourceAPI, runs: true, err: down},
		"it runs, of a manifest's": {source: pod.SourceFile, runs: true, err: down},
	} {
		got, says := refuse(&pod.Pod{Source: c.source}, c.runs, c.err)
		if diff := cmp.Diff(c.want, got); diff != "" || says != c.says {
			t.Errorf("%s: %t (-want +got):\n%s", name, says, diff)
		}
	}
}
