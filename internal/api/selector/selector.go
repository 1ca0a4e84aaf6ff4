package selector

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-run/berth/internal/api/answer"
)

// Selector filters objects by namespace, labels and fields.
type Selector struct {
	namespace string // empty: all
	labels    labels.Selector
	fields    fields.Selector
}

// New parses the selectors of a request. fieldNames holds the fields that the objects have.
func New(namespace, labelText, fieldText string, fieldNames fields.Set) (Selector, error) {
	sel := Selector{namespace: namespace}
	var err error
	if sel.labels, err = labels.Parse(labelText); err != nil {
		return sel,
			answer.BadRequest(fmt.Sprintf("labelSelector %q: %v", labelText, err), "write it like app=web,tier!=test")
	}
	if sel.fields, err = fields.ParseSelector(fieldText); err != nil {
		return sel,
			answer.BadRequest(fmt.Sprintf("fieldSelector %q: %v", fieldText, err), "write it like metadata.name=web")
	}
	for _, req := range sel.fields.Requirements() {
		if !fieldNames.Has(req.Field) {
			return sel, answer.BadRequest(fmt.Sprintf("fieldSelector: unknown field %q", req.Field),
				"known fields: "+strings.Join(sortedKeys(fieldNames), ", "))
		}
	}
	return sel, nil
}

func sortedKeys(set fields.Set) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Matches reports whether an object with this namespace, labels and fields is selected.
func (s Selector) Matches(namespace string, l map[string]string, f fields.Set) bool {
	return (s.namespace == "" || s.namespace == namespace) && s.labels.Matches(labels.Set(l)) && s.fields.Matches(f)
}

// Pod reports whether a pod is selected. A nil pod is not.
func (s Selector) Pod(p *corev1.Pod) bool {
	return p != nil && s.Matches(p.Namespace, p.Labels, PodFields(p))
}

// Event reports whether an event is selected.
func (s Selector) Event(e *corev1.Event) bool {
	return s.Matches(e.Namespace, e.Labels, EventFields(e))
}

// PodFields returns the fields of a pod that field selectors of the Kubernetes API can use, and its UID.
func PodFields(p *corev1.Pod) fields.Set {
	return fields.Set{
		"metadata.name":            p.Name,
		"metadata.namespace":       p.Namespace,
		"metadata.uid":             string(p.UID), // Kubernetes lacks it; "berth run" follows its pods by UID
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"spec.hostNetwork":         fmt.Sprint(p.Spec.HostNetwork),
		"status.phase":             string(p.Status.Phase),
		"status.podIP":             p.Status.PodIP,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

// EventFields returns the fields of an event that field selectors of the Kubernetes API can use.
func EventFields(e *corev1.Event) fields.Set {
	ref := e.InvolvedObject
	return fields.Set{
		"metadata.name":                  e.Name,
		"metadata.namespace":             e.Namespace,
		"involvedObject.kind":            ref.Kind,
		"involvedObject.namespace":       ref.Namespace,
		"involvedObject.name":            ref.Name,
		"involvedObject.uid":             string(ref.UID),
		"involvedObject.apiVersion":      ref.APIVersion,
		"involvedObject.resourceVersion": ref.ResourceVersion,
		"involvedObject.fieldPath":       ref.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         e.Source.Component,
		"type":                           e.Type,
	}
}
