package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/api/servertest"
)

func TestDebugAndResize(t *testing.T) {
	a := servertest.Start(t)
	p := running(a, "web", "app")
	for _, name := range []string{"good", "bad"} {
		a.WriteLog(t, p, name, 0, "seen")
	}
	tests := []struct {
		args string
		want result
	}{
		{"debug web --image tools:1 -c good --target app -- look",
			result{Out: "seen\n", Err: "container good added to pod web\n"}},
		{"debug web --image tools:1 -c bad -- fail",
			result{Out: "seen\n", Err: "container bad added to pod web\n", Status: 3}},
		{"debug web --image tools:1 look",
			result{Err: "error: debug web look: unexpected argument \"look\"\nnext: write the command after " +
				"--\n", Status: 1}},
		{"debug web",
			result{Err: "error: debug web: required flag(s) \"image\" not set\nnext: see \"berth debug " +
				"--help\"\n", Status: 1}},
		{"resize web --limits cpu=1,memory=64Mi --requests cpu=100m", result{Out: "pod/web resize requested\n"}},
		{"resize none --limits cpu=1",
			result{
				Err: "error: resize none: pods \"default/none\" not found\nnext: list the pods of this node " +
					"with \"berth get " +
					"pods -A\"\n", Status: 1}},
		{"resize web --limits cpu",
			result{
				Err: "error: resize web: --limits: \"cpu\" is not an amount of a resource\nnext: write it " +
					"like cpu=100m or " +
					"memory=64Mi\n", Status: 1}},
		{"resize web --limits cpu=1,cpu=2",
			result{Err: "error: resize web: --limits names cpu twice\nnext: name each resource once\n", Status: 1}},
		{"resize web",
			result{
				Err: "error: resize web: at least one of the flags in the group [requests limits] is " +
					"required\nnext: see \"berth " +
					"resize --help\"\n", Status: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, berth(a, "", strings.Fields(tt.args)...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
