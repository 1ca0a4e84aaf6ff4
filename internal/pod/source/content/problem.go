package content

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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
	// Ignored says that the manifest is used without the fields that Err names.
	Ignored bool
	// Since is when the problem was first seen.
	Since time.Time
}

// ProblemKey identifies a problem by its origin and text.
type ProblemKey struct{ Origin, Text string }

// MissingError is the problem of a manifest directory, or of a single manifest file, that disappeared while its pods
// run.
type MissingError struct {
	// Path of the directory or file.
	Path string
	// Why the manifests cannot be read, in words that follow the path.
	Why string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s %s: the pods of its manifests keep running; next: bring it back, or put a manifest there "+
		"(an empty List ends these pods)", e.Path, e.Why)
}

// Key returns the key of the problem in a table.
func (p Problem) Key() ProblemKey { return ProblemKey{Origin: p.Origin, Text: p.Err.Error()} }

// About returns the problem with the name of what it concerns.
func (p Problem) About(key object.Key) Problem {
	if key.Kind == "Pod" {
		p.Pod = types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	} else if key.Name != "" {
		p.Object = key
	}
	return p
}

// Faulty reports whether problems make a part of a manifest unusable.
func Faulty(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return !p.Ignored })
}

// Build reads the text of a file or URL. It returns the valid part, completed, and the problems of the rest. It ignores
// unknown fields, as the kubelet does: a pod that a kubelet has started from this text keeps running.
func Build(text []byte, origin string, from pod.Source, node string) (w Wanted, problems []Problem) {
	if len(document.Split(text)) == 0 {
		return w, []Problem{{Origin: origin,
			Err: fmt.Errorf("%s: is empty; next: remove it, or give it an empty List if no pod should run", origin)}}
	}
	objects, err := manifest.DecodeLenient(text, origin)
	if errs, ok := errors.AsType[manifest.Errors](err); ok {
		for _, e := range errs {
			problems = append(problems,
				Problem{Origin: origin, Err: reason.Wrap(reason.FailedValidation, e)}.About(e.Key))
		}
	}
	for _, o := range objects {
		if err := w.add(o, from, node); err != nil {
			problems = append(problems, Problem{Origin: origin, Err: err}.About(o.Key()))
		} else if warning := o.Warning(); warning != nil {
			problems = append(problems, Problem{Origin: origin, Ignored: true, Err: reason.New(reason.FieldIgnored,
				"%w; next: correct the manifest, which is used without unknown fields and with the last value of a "+
					"key that is given twice", warning)}.About(o.Key()))
		}
	}
	return w, problems
}

func (w *Wanted) add(o manifest.Object, from pod.Source, node string) error {
	if o.Value != nil {
		i, err := CompleteObject(o)
		if err == nil {
			i.identify(o.Origin, node)
			w.Objects = append(w.Objects, i)
		}
		return err
	}
	p, err := static(o, from, node)
	if err == nil {
		w.Pods = append(w.Pods, p)
	}
	return err
}

// ParseName returns the namespace and name in namespace/name.
func ParseName(s string) types.NamespacedName {
	namespace, name, _ := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// Attrs returns the attributes for a log line.
func (p Problem) Attrs() []any {
	if p.Object.Name != "" {
		return []any{"origin", p.Origin, "object", p.Object, "err", p.Err}
	}
	return []any{"origin", p.Origin, "pod", p.Pod, "err", p.Err}
}

// Compare orders problems by origin and text.
func (p Problem) Compare(q Problem) int {
	return cmp.Or(cmp.Compare(p.Origin, q.Origin), cmp.Compare(p.Err.Error(), q.Err.Error()))
}
