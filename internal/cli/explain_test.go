package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/servertest"
)

func TestExplain(t *testing.T) {
	a := servertest.Start(t)
	web := file(t, "web.yaml", "kind: Pod")
	admitted := api.Answer{Verdict: api.Admitted}
	given := api.Explanation{
		Namespace: "default", Name: "pinned", Answer: admitted, Replaces: "default/pinned-node1",
		Rules: []api.RuleAnswer{{Rule: "os", Answer: admitted}},
		Gets: []api.Grant{
			{Container: "app", CPUs: "2-3",
				Devices: map[string][]string{"example.com/gpu": {"a", "b"}, "example.com/fpga": {"x"}},
				Memory: []api.MemoryGrant{{Nodes: []int{0, 1}, Resource: "memory", Bytes: 3 << 30},
					{Nodes: []int{0}, Resource: "hugepages-2Mi", Bytes: 4 << 20}}},
			{CPUs: "5"},
		},
	}
	short := api.Answer{Verdict: api.NotYet, Reason: "OutOfcpu", Message: "waiting for pod default/a to end: too small",
		Until: new(metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)))}
	critical := api.Explanation{Namespace: "default", Name: "critical", Answer: short, Preempt: []string{"default/a"},
		Rules: []api.RuleAnswer{{Rule: "os", Answer: admitted}, {Rule: "resources", Answer: short}}}
	invalid := api.Explanation{Namespace: "default", Name: "bad",
		Answer: api.Answer{Verdict: api.Invalid, Reason: "FailedValidation",
			Message: "line 3: spec.containers: Required value"}}
	tests := map[string]struct {
		all  []api.Explanation
		in   string
		args []string
		want result
	}{
		"what it gets": {all: []api.Explanation{given}, args: []string{web},
			want: result{Out: `pod default/pinned: admitted
In the place of pod default/pinned-node1.

RULE   ANSWER     WHY
os     admitted

CONTAINER   CPUS   MEMORY                                                  DEVICES
app         2-3    3Gi memory of nodes 0 1, 4Mi hugepages-2Mi of nodes 0   example.com/fpga: x, example.com/gpu: a b
(the pod)   5      -                                                       -
`}},
		"what it waits for": {all: []api.Explanation{critical, invalid}, args: []string{"-"}, in: "kind: Pod",
			want: result{Status: 2,
				Out: `pod default/critical: not yet: OutOfcpu: waiting for pod default/a to end: too small (until ` +
					`12:00:00)
It is critical: default/a would be ended to make room.

RULE        ANSWER     WHY
os          admitted
resources   not yet    OutOfcpu: waiting for pod default/a to end: too small (until 12:00:00)

pod default/bad: invalid: FailedValidation: line 3: spec.containers: Required value
`}},
		"JSON": {all: []api.Explanation{invalid}, args: []string{web, "-o", "json"}, want: result{Status: 2, Out: `{
  "kind": "ExplanationList",
  "apiVersion": "berth.run/v1",
  "items": [
    {
      "namespace": "default",
      "name": "bad",
      "verdict": "invalid",
      "reason": "FailedValidation",
      "message": "line 3: spec.containers: Required value"
    }
  ]
}
`}},
		"no pods": {args: []string{web}, want: result{Out: "The manifests have no pods.\n"}},
		"no file": {want: result{Status: 1,
			Err: "error: explain: no manifest is named\nnext: usage: berth explain FILE...|--pressure [flags]\n"}},
		"another format": {args: []string{web, "-o", "wide"},
			want: result{Status: 1, Err: "error: explain " + web + ": output format \"wide\" is not " +
				"known\nnext: use one of json, yaml\n"}},
		"a bad manifest": {args: []string{"-"},
			want: result{Status: 1, Err: "error: explain -: nothing is in it\nnext: correct the manifest\n"}},
		"a file not there": {args: []string{"/no/pod.yaml"},
			want: result{Status: 1,
				Err: "error: explain /no/pod.yaml: read manifest: open /no/pod.yaml: no such file or " +
					"directory\nnext: give the path of a " +
					"file with pods, or - for standard input\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a.SetExplanations(test.all...)
			if diff := cmp.Diff(test.want,
				berth(a, test.in, append([]string{"explain"}, test.args...)...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
