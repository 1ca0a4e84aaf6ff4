package https

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// methods returns the HTTP methods of a route. An empty string stands for all methods.
func methods(rt route) []string {
	if rt.methods == "" {
		return []string{""}
	}
	return strings.Fields(rt.methods)
}

// verbFor returns the verb that a request needs permission for: the route's own, or the API verb of the
// HTTP method. It is empty for a method without an API verb.
func verbFor(rt route, method string) string {
	verbs := map[string]string{"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch",
		"DELETE": "delete"}
	return cmp.Or(rt.verb, verbs[method])
}

// bucket returns the label "path" of a route in the kubelet's metrics: the first element of its path, or
// the first two below /metrics.
func bucket(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if first != "metrics" || rest == "" {
		return first
	}
	second, _, _ := strings.Cut(rest, "/")
	return first + "/" + second
}

// methodBucket returns the label "method". All unknown methods share one value, so that clients cannot
// create labels.
func methodBucket(method string) string {
	if slices.Contains([]string{"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"}, method) {
		return method
	}
	return "other"
}

// longRunning returns the label "long_running" of a bucket.
func longRunning(bucket string) string {
	switch bucket {
	case "exec", "attach", "portForward", "debug":
		return "true"
	}
	return "false"
}

// podList returns the answer to /pods, sorted by namespace and name.
func podList(pods []*corev1.Pod) *corev1.PodList {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items: make([]corev1.Pod, 0, len(pods))}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// runningPods returns the pods with a running container. Each has its name, namespace, UID and running
// containers, and nothing else.
func runningPods(pods []*corev1.Pod) []*corev1.Pod {
	var running []*corev1.Pod
	for _, p := range pods {
		r := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID}}
		st := &p.Status
		for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
			if c.State.Running != nil {
				r.Spec.Containers = append(r.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
			}
		}
		if len(r.Spec.Containers) > 0 {
			running = append(running, r)
		}
	}
	return running
}
