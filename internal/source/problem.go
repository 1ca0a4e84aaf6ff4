package source

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/document"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/reason"
	"github.com/berth-run/berth/internal/source/manifest"
)

// Problem is something that a source could not take. It stands in the table of
// problems for as long as it lasts.
type Problem struct {
	// Origin is the path, the URL, or "berth apply".
	Origin string
	// Pod is the pod that it is about; empty when that cannot be told.
	Pod types.NamespacedName
	// Err says what is wrong. It carries the reason FailedValidation
	// (internal/reason) unless the origin itself could not be read.
	Err error
	// Since is when it was first seen.
	Since time.Time
}

// ProblemKey tells problems apart: the same text of the same origin is the same problem.
type ProblemKey struct{ Origin, Text string }

func (p Problem) key() ProblemKey { return ProblemKey{Origin: p.Origin, Text: p.Err.Error()} }

// build reads a manifest of a file or URL: the pods that can be used, completed,
// and what is wrong with the others.
func build(text []byte, origin string, from pod.Source, node string) ([]*pod.Pod, []Problem) {
	if len(document.Split(text)) == 0 {
		return nil, []Problem{{Origin: origin, Err: fmt.Errorf("%s: is empty: remove it, or give it an empty List, if no pod is to run", origin)}}
	}
	objects, err := manifest.Decode(text, origin)
	var problems []Problem
	if errs, ok := errors.AsType[manifest.Errors](err); ok {
		for _, e := range errs {
			problems = append(problems, Problem{Origin: origin, Pod: parseName(e.Pod), Err: reason.Wrap(reason.FailedValidation, e)})
		}
	}
	var pods []*pod.Pod
	for _, o := range objects {
		p, err := static(o, from, node)
		if err != nil {
			problems = append(problems, Problem{Origin: origin, Pod: types.NamespacedName{Namespace: o.Pod.Namespace, Name: o.Pod.Name}, Err: err})
			continue
		}
		pods = append(pods, p)
	}
	return pods, problems
}

func parseName(s string) types.NamespacedName {
	namespace, name, _ := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// reporter is told of each problem once, when it appears.
type reporter interface {
	SourceProblem(Problem)
}

// compare orders problems for telling.
func (p Problem) compare(q Problem) int {
	return cmp.Or(cmp.Compare(p.Origin, q.Origin), cmp.Compare(p.Err.Error(), q.Err.Error()))
}
