package event

import (
	"context"
	"fmt"
	"iter"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/wake"
)

// Filter selects events. An empty field matches every value.
type Filter struct {
	Namespace string // of the object
	Kind      string
	Name      string
	UID       types.UID
	FieldPath string
	Type      string
	Reason    string
}

func (f Filter) match(g *group) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(f.Namespace, g.ref.Namespace) && is(f.Kind, g.ref.Kind) && is(f.Name, g.ref.Name) &&
		is(string(f.UID), string(g.ref.UID)) && is(f.FieldPath, g.ref.FieldPath) &&
		is(f.Type, g.eventType) && is(f.Reason, g.reason)
}

// List returns the events that match the filter, the last one at the end, and the revision where Watch continues.
func (r *Recorder) List(f Filter) ([]corev1.Event, uint64) {
	found, rev := r.since(0, f)
	events := make([]corev1.Event, len(found))
	for i := range found {
		events[i] = r.object(&found[i])
	}
	return events, rev
}

// Watch yields the events that match the filter and changed after the revision since (0: all), then each changed event,
// until ctx ends. A repeat yields the event again with its new count. A slow reader gets several repeats as one. The
// revision of an event is its resourceVersion.
func (r *Recorder) Watch(ctx context.Context, f Filter, since uint64) iter.Seq[corev1.Event] {
	return func(yield func(corev1.Event) bool) {
		changed := wake.New()
		r.mu.Lock()
		r.watchers[changed] = struct{}{}
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.watchers, changed)
		}()
		for ctx.Err() == nil {
			var found []content
			found, since = r.since(since, f)
			for i := range found {
				if !yield(r.object(&found[i])) {
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-changed.C():
			}
		}
	}
}

// since returns copies of the events that changed after rev, and the revision to continue from.
func (r *Recorder) since(rev uint64, f Filter) ([]content, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring.since(rev, f), max(r.ring.rev, rev)
}

// object returns an event in the form of the API.
func (r *Recorder) object(c *content) corev1.Event {
	ref := c.group.ref
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // the namespace for events of objects without one, such as a Node
	}
	return corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("%s.%x", ref.Name, c.seq),
			Namespace:         namespace,
			ResourceVersion:   strconv.FormatUint(c.rev, 10),
			CreationTimestamp: metav1.NewTime(c.first),
			Annotations:       c.annotations,
		},
		InvolvedObject:      ref,
		Reason:              c.group.reason,
		Message:             c.message,
		Source:              corev1.EventSource{Component: r.component, Host: r.host},
		FirstTimestamp:      metav1.NewTime(c.first),
		LastTimestamp:       metav1.NewTime(c.last),
		Count:               c.count,
		Type:                c.group.eventType,
		ReportingController: r.component,
		ReportingInstance:   r.host,
	}
}
