package source

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// Problem is something that a source could not take. It stands in the table of
// problems for as long as it lasts.
type Problem struct {
	// Origin is the path, the URL, or "berth apply".
	Origin string
	// Pod or Object is what it is about; both are empty when that cannot be told.
	Pod    types.NamespacedName
	Object object.Key
	// Err says what is wrong. It carries the reason FailedValidation
	// (internal/base/reason) unless the origin itself could not be read.
	Err error
	// Since is when it was first seen.
	Since time.Time
}

// ProblemKey tells problems apart: the same text of the same origin is the same problem.
type ProblemKey struct{ Origin, Text string }

func (p Problem) key() ProblemKey { return ProblemKey{Origin: p.Origin, Text: p.Err.Error()} }

// about says what the problem is about.
func (p Problem) about(key object.Key) Problem {
	if key.Kind == "Pod" {
		p.Pod = types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	} else if key.Name != "" {
		p.Object = key
	}
	return p
}

// build reads a manifest of a file or URL: what can be used, completed, and what
// is wrong with the rest.
func build(text []byte, origin string, from pod.Source, node string) (w wanted, problems []Problem) {
	if len(document.Split(text)) == 0 {
		return w, []Problem{{Origin: origin,
			Err: fmt.Errorf("%s: is empty: remove it, or give it an empty List, if no pod is to run", origin)}}
	}
	objects, err := manifest.Decode(text, origin)
	if errs, ok := errors.AsType[manifest.Errors](err); ok {
		for _, e := range errs {
			problems = append(problems,
				Problem{Origin: origin, Err: reason.Wrap(reason.FailedValidation, e)}.about(e.Key))
		}
	}
	for _, o := range objects {
		if err := w.take(o, from, node); err != nil {
			problems = append(problems, Problem{Origin: origin, Err: err}.about(o.Key()))
		}
	}
	return w, problems
}

func (w *wanted) take(o manifest.Object, from pod.Source, node string) error {
	if o.Value != nil {
		i, err := completed(o)
		if err == nil {
			i.identify(o.Origin, node)
			w.objects = append(w.objects, i)
		}
		return err
	}
	p, err := static(o, from, node)
	if err == nil {
		w.pods = append(w.pods, p)
	}
	return err
}

func parseName(s string) types.NamespacedName {
	namespace, name, _ := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// reporter is told of each problem once, when it appears.
type reporter interface {
	SourceProblem(Problem)
}

func (p Problem) attrs() []any {
	if p.Object.Name != "" {
		return []any{"origin", p.Origin, "object", p.Object, "err", p.Err}
	}
	return []any{"origin", p.Origin, "pod", p.Pod, "err", p.Err}
}

// compare orders problems for telling.
func (p Problem) compare(q Problem) int {
	return cmp.Or(cmp.Compare(p.Origin, q.Origin), cmp.Compare(p.Err.Error(), q.Err.Error()))
}
