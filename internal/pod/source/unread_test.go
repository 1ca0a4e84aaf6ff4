package source

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

func TestMayWant(t *testing.T) {
	broken := errors.New("broken")
	of := func(name string) Problem {
		return Problem{Err: broken, Pod: types.NamespacedName{Namespace: "default", Name: name}}
	}
	o := &pod.Observed{Namespace: "default", Name: "web-node"}
	for _, test := range []struct {
		name     string
		problems []Problem
		want     bool
	}{
		{"problems that are not reported yet", nil, true},
		{"a manifest without a readable name", []Problem{{Err: broken}}, true},
		{"the pod as written", []Problem{of("db"), of("web")}, true},
		{"the completed pod", []Problem{of("web-node")}, true},
		{"another pod", []Problem{of("db")}, false},
		{"another object", []Problem{{Err: broken, Object: object.Key{Kind: "Secret", Name: "web"}}}, false},
		{"another pod, beside ignored fields", []Problem{of("db"), {Err: broken, Ignored: true}}, false},
	} {
		if got := mayWant(test.problems, o, "Node"); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
