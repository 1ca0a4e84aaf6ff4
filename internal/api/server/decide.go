package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// selector filters objects by namespace, labels and fields.
type selector struct {
	namespace string // empty: all
	labels    labels.Selector
	fields    fields.Selector
}

// newSelector parses the selectors of a request. fieldNames holds the fields that the objects have.
func newSelector(namespace, labelText, fieldText string, fieldNames fields.Set) (selector, error) {
	sel := selector{namespace: namespace}
	var err error
	if sel.labels, err = labels.Parse(labelText); err != nil {
		return sel, BadRequest(fmt.Sprintf("labelSelector %q: %v", labelText, err), "write it like app=web,tier!=test")
	}
	if sel.fields, err = fields.ParseSelector(fieldText); err != nil {
		return sel, BadRequest(fmt.Sprintf("fieldSelector %q: %v", fieldText, err), "write it like metadata.name=web")
	}
	for _, req := range sel.fields.Requirements() {
		if !fieldNames.Has(req.Field) {
			return sel, BadRequest(fmt.Sprintf("fieldSelector: unknown field %q", req.Field),
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

func (s selector) matches(namespace string, l map[string]string, f fields.Set) bool {
	return (s.namespace == "" || s.namespace == namespace) && s.labels.Matches(labels.Set(l)) && s.fields.Matches(f)
}

func (s selector) pod(p *corev1.Pod) bool {
	return p != nil && s.matches(p.Namespace, p.Labels, podFields(p))
}

func (s selector) event(e *corev1.Event) bool {
	return s.matches(e.Namespace, e.Labels, eventFields(e))
}

// podFields returns the fields by which pods can be selected in the Kubernetes API, and the UID.
func podFields(p *corev1.Pod) fields.Set {
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

// eventFields returns the fields by which events can be selected in the Kubernetes API.
func eventFields(e *corev1.Event) fields.Set {
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

type podChange = store.Change[types.NamespacedName, *corev1.Pod]

// notice is one event of a watch before it is written.
type notice struct {
	Type watch.EventType
	Pod  *corev1.Pod
}

// notices returns the watch events for a change, given the pods that the watcher has seen, and updates
// those. A pod that came and went between two reads of the table is reported as added and deleted, because
// a client may wait for its end.
func notices(known map[types.NamespacedName]*corev1.Pod, c podChange, match func(*corev1.Pod) bool) []notice {
	was, is := known[c.Key], c.Value
	if was != nil && is != nil && was.UID != is.UID {
		delete(known, c.Key)
		return append([]notice{{watch.Deleted, was}}, notices(known, c, match)...)
	}
	gone := c.Deleted || !match(is)
	switch {
	case was == nil && c.Deleted && match(is):
		return []notice{{watch.Added, is}, {watch.Deleted, is}}
	case was == nil && gone:
		return nil
	case was == nil:
		known[c.Key] = is
		return []notice{{watch.Added, is}}
	case gone:
		delete(known, c.Key)
		if is == nil {
			is = was
		}
		return []notice{{watch.Deleted, is}}
	case was == is:
		return nil
	}
	known[c.Key] = is
	return []notice{{watch.Modified, is}}
}

// chooseContainer returns the container that a request names, or the pod's only one if the name is empty
// (PodLogOptions.container, PodExecOptions.container).
func chooseContainer(p *corev1.Pod, name string) (pod.Container, error) {
	if name != "" {
		if c, ok := pod.FindContainer(p, name); ok {
			return c, nil
		}
		return pod.Container{}, BadRequest(fmt.Sprintf("container %q is not in pod %s", name, pod.FullName(p)),
			"its containers: "+containerNames(p))
	}
	if len(p.Spec.Containers) == 1 {
		c, _ := pod.FindContainer(p, p.Spec.Containers[0].Name)
		return c, nil
	}
	return pod.Container{}, BadRequest(fmt.Sprintf("pod %s has several containers", pod.FullName(p)),
		"name one: "+containerNames(p))
}

func containerNames(p *corev1.Pod) string {
	var names []string
	for _, c := range pod.Containers(p) {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// containerStatus returns the status of a container of any kind. It is zero if there is no status yet.
func containerStatus(p *corev1.Pod, name string) corev1.ContainerStatus {
	st := &p.Status
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses,
		st.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name == name {
				return c
			}
		}
	}
	return corev1.ContainerStatus{}
}

// chooseInstance returns the restart count of the container instance whose log to read. requested is the
// instance that the request names, or nil. If there is no such instance, the error says so in the words of
// the Kubernetes API.
func chooseInstance(p *corev1.Pod, opts *corev1.PodLogOptions, requested *int64) (int, error) {
	st := containerStatus(p, opts.Container)
	newest := int(st.RestartCount)
	ran := st.State.Running != nil || st.State.Terminated != nil
	ranBefore := st.LastTerminationState.Terminated != nil
	switch {
	case requested != nil && *requested <= int64(newest) && (ran || ranBefore):
		return int(*requested), nil
	case requested != nil && (ran || ranBefore):
		return 0, BadRequest(fmt.Sprintf("container %q in pod %q has no instance %d", opts.Container, p.Name, *requested),
			fmt.Sprintf("the newest is %d", newest))
	case opts.Previous && !ranBefore:
		return 0, BadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", opts.Container,
			p.Name),
			"it has not been restarted; leave out --previous")
	case opts.Previous && ran:
		return max(newest-1, 0), nil
	case ran:
		return newest, nil
	case ranBefore && st.ContainerID != "" && st.ContainerID != st.LastTerminationState.Terminated.ContainerID:
		return max(newest-1, 0), nil // the next instance is created and has not started yet
	case ranBefore:
		return newest, nil // while a container waits for its restart, its last instance is also the previous one
	}
	why := "its pod is " + strings.ToLower(cmp.Or(string(p.Status.Phase), "not started"))
	if w := st.State.Waiting; w != nil && w.Reason != "" {
		// These are the texts of kubectl logs.
		why = cmp.Or(map[string]string{
			reason.ErrImagePull: "image can't be pulled", reason.ImagePullBackOff: "trying and failing to pull image",
		}[w.Reason], w.Reason)
	}
	return 0, BadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", opts.Container, p.Name, why),
		fmt.Sprintf("see why with \"berth describe pod %s -n %s\"", p.Name, p.Namespace))
}

// instanceEnded reports whether the n-th instance of a container has ended.
func instanceEnded(p *corev1.Pod, container string, n int) bool {
	st := containerStatus(p, container)
	return pod.Ended(p.Status.Phase) ||
		int(st.RestartCount) > n || int(st.RestartCount) == n && st.State.Running == nil
}

// readOptions converts the options of a request to those of podlog.
func readOptions(o *corev1.PodLogOptions, now time.Time) podlog.Options {
	r := podlog.Options{Tail: o.TailLines, LimitBytes: o.LimitBytes, Timestamps: o.Timestamps, Follow: o.Follow}
	switch {
	case o.SinceTime != nil:
		r.Since = o.SinceTime.Time
	case o.SinceSeconds != nil:
		r.Since = now.Add(-time.Duration(*o.SinceSeconds) * time.Second)
	}
	if o.Stream != nil && *o.Stream != corev1.LogStreamAll {
		r.Stream = podlog.Stream(strings.ToLower(*o.Stream))
	}
	return r
}

// typed returns a copy of a pod for an answer. It adds kind, apiVersion and resourceVersion, which pods in
// the table lack.
func typed(p *corev1.Pod, resourceVersion string) *corev1.Pod {
	c := *p
	c.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	c.ResourceVersion = resourceVersion
	return &c
}
