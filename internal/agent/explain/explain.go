package explain

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/gate"
	"github.com/berth-run/berth/internal/pod/source/content"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// Explainer runs the rules of admission for pods that no source wants yet.
type Explainer struct {
	// Node is the node's name.
	Node string
	// Inputs collects what the rules depend on, without the other pods.
	Inputs gate.Inputs
	Fleet  Fleet
}

// Fleet is the set of this node's pods.
type Fleet interface {
	// Holders returns the pods that hold resources of the node, and Reserved those that wait for resources which are
	// reserved for them.
	Holders() []fleet.Other
	Reserved() []fleet.Other
}

// Explain returns the answer for each pod of the manifests, as if that pod alone were applied now.
func (x Explainer) Explain(objects []manifest.Object) []api.Explanation {
	var classes []*nodev1.RuntimeClass
	for _, m := range objects {
		if class, ok := m.Value.(*nodev1.RuntimeClass); ok {
			classes = append(classes, class)
		}
	}
	items := []api.Explanation{}
	for _, m := range objects {
		if m.Pod != nil {
			items = append(items, x.explain(m, classes))
		}
	}
	return items
}

func (x Explainer) explain(m manifest.Object, classes []*nodev1.RuntimeClass) api.Explanation {
	e := api.Explanation{Namespace: cmp.Or(m.Pod.Namespace, metav1.NamespaceDefault), Name: m.Pod.Name}
	p, err := content.Complete(m, x.Node)
	if err != nil {
		e.Answer = api.Answer{Verdict: api.Invalid, Reason: reason.FailedValidation, Message: reason.Message(err)}
		return e
	}
	p.Seen, p.UID = time.Now(), cmp.Or(p.UID, uuid.NewUUID())
	class := withRuntimeClasses(classes, x.Inputs.Of(p).RuntimeClass)
	if name := p.Spec.RuntimeClassName; name != nil {
		if c, err := class(*name); err == nil { // a rule of admission reports a missing class
			object.ApplyClass(&p.Spec, c)
		}
	}
	others := slices.DeleteFunc(slices.Concat(x.Fleet.Holders(), x.Fleet.Reserved()), func(o fleet.Other) bool {
		mine := x.replaces(p, o.Pod)
		if mine {
			e.Replaces = pod.FullName(o.Pod.Pod)
			p.Annotations[pod.AnnotationConfigSource] = string(o.Pod.Source) // some rules exempt static pods
		}
		return mine
	})
	in := gate.Beside(x.Inputs.Of(p), others)
	in.RuntimeClass = class
	answer, traces := admission.Admit(in)
	e.Answer = answerOf(answer)
	for _, t := range traces {
		e.Rules = append(e.Rules, api.RuleAnswer{Rule: t.Rule, Answer: answerOf(t.Answer)})
	}
	var uids []types.UID
	for _, o := range others {
		uids = append(uids, o.Pod.UID)
		if slices.Contains(answer.Preempt, o.Pod.UID) {
			e.Preempt = append(e.Preempt, pod.FullName(o.Pod.Pod))
		}
	}
	if answer.Verdict == admission.Admitted && in.Allot != nil {
		if given, err := in.Allot(uids); err == nil { // the topology rule has found the same allocation
			e.Gets = gets(given)
		}
	}
	return e
}

// withRuntimeClasses looks a class up in the manifests first, and then among the existing classes.
func withRuntimeClasses(mine []*nodev1.RuntimeClass, others runtimeClasses) runtimeClasses {
	return func(name string) (*nodev1.RuntimeClass, error) {
		if i := slices.IndexFunc(mine, func(c *nodev1.RuntimeClass) bool { return c.Name == name }); i >= 0 {
			return mine[i], nil
		}
		return others(name)
	}
}

type runtimeClasses = func(name string) (*nodev1.RuntimeClass, error)

// replaces reports whether applying the manifest of p would replace the pod there. A static pod has the node's name as
// suffix.
func (x Explainer) replaces(p, there *pod.Pod) bool {
	name := p.Name
	if pod.Static(there.Pod) {
		name += "-" + strings.ToLower(x.Node)
	}
	return there.Namespace == p.Namespace && (there.Name == name || there.Name == p.Name)
}

func answerOf(a admission.Answer) api.Answer {
	out := api.Answer{Verdict: a.Verdict.String(), Reason: a.Reason, Message: a.Message}
	if !a.Until.IsZero() {
		out.Until = new(metav1.NewTime(a.Until))
	}
	return out
}

// gets lists the CPUs, memory and devices that a pod gets for itself, by container.
func gets(a resource.Allocation) (list []api.Grant) {
	add := func(name string, g resource.Holding) {
		given := api.Grant{Container: name, CPUs: g.CPUs.String()}
		for _, b := range g.Memory {
			given.Memory = append(given.Memory,
				api.MemoryGrant{Nodes: b.Nodes.IDs(), Resource: string(b.Resource), Bytes: b.Size})
		}
		for resource, ids := range g.Devices {
			if given.Devices == nil {
				given.Devices = map[string][]string{}
			}
			given.Devices[string(resource)] = ids
		}
		if given.CPUs != "" || given.Memory != nil || given.Devices != nil {
			list = append(list, given)
		}
	}
	add("", a.Pod)
	for _, name := range slices.Sorted(maps.Keys(a.Containers)) {
		add(name, a.Containers[name])
	}
	return list
}
