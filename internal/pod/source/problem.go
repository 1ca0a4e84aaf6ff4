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

// Problem is a manifest, or a part of one, that a source could not use. It stays in the table of problems until it is
// resolved.
type Problem struct {
	// Origin is a path, a URL, or "berth apply".
	Origin string
	// Pod or Object names what the problem concerns. Both are empty if that is unknown.
	Pod    types.NamespacedName
	Object object.Key
	// Err is the problem. It carries the reason FailedValidation (internal/base/reason) unless the origin itself could
	// not be read.
	Err error
	// Since is when the problem was first seen.
	Since time.Time
}

// ProblemKey identifies a problem by its origin and text.
type ProblemKey struct{ Origin, Text string }

func (p Problem) key() ProblemKey { return ProblemKey{Origin: p.Origin, Text: p.Err.Error()} }

// about returns the problem with the name of what it concerns.
func (p Problem) about(key object.Key) Problem {
	if key.Kind == "Pod" {
		p.Pod = types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	} else if key.Name != "" {
		p.Object = key
	}
	return p
}

// build reads the text of a file or URL. It returns the valid part, completed, and the problems of the rest.
func build(text []byte, origin string, from pod.Source, node string) (w wanted, problems []Problem) {
	if len(document.Split(text)) == 0 {
		return w, []Problem{{Origin: origin,
			Err: fmt.Errorf("%s: is empty; next: remove it, or give it an empty List if no pod should run", origin)}}
	}
	objects, err := manifest.Decode(text, origin)
	if errs, ok := errors.AsType[manifest.Errors](err); ok {
		for _, e := range errs {
			problems = append(problems,
				Problem{Origin: origin, Err: reason.Wrap(reason.FailedValidation, e)}.about(e.Key))
		}
	}
	for _, o := range objects {
		if err := w.add(o, from, node); err != nil {
			problems = append(problems, Problem{Origin: origin, Err: err}.about(o.Key()))
		}
	}
	return w, problems
}

func (w *wanted) add(o manifest.Object, from pod.Source, node string) error {
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

// reporter receives each problem once, when it appears.
type reporter interface {
	SourceProblem(Problem)
}

func (p Problem) attrs() []any {
	if p.Object.Name != "" {
		return []any{"origin", p.Origin, "object", p.Object, "err", p.Err}
	}
	return []any{"origin", p.Origin, "pod", p.Pod, "err", p.Err}
}

// compare orders problems by origin and text.
func (p Problem) compare(q Problem) int {
	return cmp.Or(cmp.Compare(p.Origin, q.Origin), cmp.Compare(p.Err.Error(), q.Err.Error()))
}
