package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berth-run/berth/internal/model/object"
)

// RuntimeClass is the reason for a pod that lacks, or contradicts, its RuntimeClass (KEP-585, KEP-688). It is Berth's
// own: the API server refuses such pods and names no reason.
const RuntimeClass = "RuntimeClass"

// checkRuntimeClass lets a pod wait for its class, and for a runtime with the handler of the class. It rejects a pod
// that contradicts the class, as the API server does. A pod that runs waits for neither: its next sandbox does.
func checkRuntimeClass(in In) Answer {
	if in.Pod.Spec.RuntimeClassName == nil {
		return Answer{}
	}
	name := *in.Pod.Spec.RuntimeClassName
	if in.RuntimeClass == nil {
		return in.waitFor(&object.Missing{Key: object.Key{Kind: object.RuntimeClass, Name: name}})
	}
	class, err := in.RuntimeClass(name)
	if err != nil {
		return in.waitFor(err)
	}
	if class.Overhead != nil && len(in.Pod.Spec.Overhead) > 0 &&
		!equality.Semantic.DeepEqual(class.Overhead.PodFixed, in.Pod.Spec.Overhead) {
		return reject(RuntimeClass, "spec.overhead is not the overhead of RuntimeClass %s: leave it out", name)
	}
	if s := class.Scheduling; s != nil {
		for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
			if own, set := in.Pod.Spec.NodeSelector[key]; set && own != s.NodeSelector[key] {
				return reject(RuntimeClass, "spec.nodeSelector[%s] is %s, and RuntimeClass %s has %s", key, own, name,
					s.NodeSelector[key])
			}
		}
	}
	if in.Config.Handlers != nil && !slices.Contains(in.Config.Handlers, class.Handler) {
		return in.waitFor(fmt.Errorf("waiting for a runtime with the handler %q of RuntimeClass %s: this one has %s",
			class.Handler, name, quoted(in.Config.Handlers)))
	}
	return Answer{}
}

func (in In) waitFor(err error) Answer {
	if in.Running {
		return Answer{}
	}
	message := err.Error()
	if missing, ok := errors.AsType[*object.Missing](err); ok {
		message = missing.Error()
	}
	return Answer{Verdict: NotYet, Reason: RuntimeClass, Message: message}
}

// quoted lists the named handlers. The default handler has no name.
func quoted(handlers []string) string {
	var named []string
	for _, h := range handlers {
		if h != "" {
			named = append(named, fmt.Sprintf("%q", h))
		}
	}
	if len(named) == 0 {
		return "only the default one"
	}
	return strings.Join(named, ", ")
}
