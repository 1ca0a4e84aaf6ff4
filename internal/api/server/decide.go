package server

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berth-run/berth/internal/base/store"
)

type podChange = store.Change[types.NamespacedName, *corev1.Pod]

// notice is one event of a watch before it is written.
type notice struct {
	Type watch.EventType
	Pod  *corev1.Pod
}

// notices returns the watch events for a change, given the pods that the watcher has seen, and updates
// those. A pod that came and went between two reads of the table is reported as added and deleted: a client may wait
// for its end.
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

// typed returns a copy of a pod for an answer. It adds kind, apiVersion and resourceVersion, which pods in
// the table lack.
func typed(p *corev1.Pod, resourceVersion string) *corev1.Pod {
	c := *p
	c.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	c.ResourceVersion = resourceVersion
	return &c
}
