package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/api/selector"
	"github.com/berth-run/berth/internal/record/event"
)

// listOptions are the parameters of a list or a watch (metav1.ListOptions).
type listOptions struct {
	selector selector.Selector
	watch    bool
	bookmark bool
	// since is the resourceVersion that a watch continues from. If it is empty, the watch begins with all
	// existing objects.
	since   string
	timeout time.Duration // 0: none
}

func listOptionsOf(r *http.Request, fieldNames fields.Set) (listOptions, error) {
	q := query.Of(r)
	opts := listOptions{
		watch:    q.Flag("watch", false),
		bookmark: q.Flag("allowWatchBookmarks", false),
		since:    q.Get("resourceVersion"),
	}
	if q.Flag("sendInitialEvents", false) || opts.since == "0" {
		opts.since = ""
	}
	if m := q.Get("resourceVersionMatch"); m != "" && m != string(metav1.ResourceVersionMatchNotOlderThan) {
		q.Bad(answer.BadRequest, "resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	q.Number("limit", 0) // the API lets a server exceed the limit; this one always answers with everything
	if q.Get("continue") != "" && q.Err == nil {
		q.Err = answer.BadRequest("query parameter continue is not supported: every list is one answer",
			"leave out continue")
	}
	if seconds := q.Number("timeoutSeconds", 0); seconds != nil {
		opts.timeout = time.Duration(*seconds) * time.Second
	}
	if q.Has("timeout") {
		d, err := time.ParseDuration(q.Get("timeout"))
		if err != nil {
			q.Bad(answer.BadRequest, "timeout", "a duration like 30s")
		}
		opts.timeout = cmp.Or(opts.timeout, d)
	}
	if q.Err != nil {
		return opts, q.Err
	}
	var err error
	opts.selector, err = selector.New(r.PathValue("namespace"), q.Get("labelSelector"), q.Get("fieldSelector"),
		fieldNames)
	return opts, err
}

func (o listOptions) context(r *http.Request) (context.Context, context.CancelFunc) {
	if o.timeout > 0 {
		return context.WithTimeout(r.Context(), o.timeout)
	}
	return context.WithCancel(r.Context())
}

// watch sends pod changes until the client goes, the timeout is over or the agent ends. A slow client
// gets the last state of each pod, not every state.
func (s podRoutes) watch(w http.ResponseWriter, r *http.Request, opts listOptions) error {
	ctx, cancel := opts.context(r)
	defer cancel()
	watcher := s.Pods.Watch()
	defer watcher.Stop()
	known, seen, err := s.knownAt(opts)
	if err != nil {
		return err
	}
	stream := newStream(w)
	initial := slices.DeleteFunc(watcher.Changes(), func(c podChange) bool { return c.Revision <= seen })
	slices.SortFunc(initial, func(a, b podChange) int {
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	s.send(stream, known, initial, opts)
	if opts.bookmark && opts.since == "" {
		mark := typed(&corev1.Pod{ObjectMeta: initialEventsEnd()}, s.version(s.Pods.Revision()))
		stream.send(watch.Bookmark, mark)
	}
	for stream.flush() {
		changes, err := watcher.Next(ctx)
		if err != nil {
			return nil
		}
		s.send(stream, known, changes, opts)
	}
	return nil
}

// knownAt returns the pods and the revision that a client has seen which continues from opts.since. The
// table has no history, so only the current revision is possible.
func (s podRoutes) knownAt(opts listOptions) (map[types.NamespacedName]*corev1.Pod, uint64, error) {
	known := map[types.NamespacedName]*corev1.Pod{}
	if opts.since == "" {
		return known, 0, nil
	}
	snapshot := s.Pods.Snapshot()
	if now := s.version(snapshot.Revision()); opts.since != now {
		return nil, 0,
			answer.Next(apierrors.NewResourceExpired(fmt.Sprintf("resourceVersion %s is too old: it is %s now",
				opts.since,
				now)),
				"list again, or watch without a resourceVersion")
	}
	for k, p := range snapshot.All() {
		if opts.selector.Pod(p) {
			known[k] = p
		}
	}
	return known, snapshot.Revision(), nil
}

func (s podRoutes) send(stream *stream, known map[types.NamespacedName]*corev1.Pod, changes []podChange,
	opts listOptions) {
	for _, c := range changes {
		for _, n := range notices(known, c, opts.selector.Pod) {
			stream.send(n.Type, typed(n.Pod, s.version(c.Revision)))
		}
	}
}

// initialEventsEnd marks the bookmark that follows the initial objects of a watch (KEP-3157).
func initialEventsEnd() metav1.ObjectMeta {
	return metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
}

// stream writes watch events, one JSON object per line (metav1.WatchEvent).
type stream struct {
	w   http.ResponseWriter
	enc *json.Encoder
	err error
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &stream{w: w, enc: enc}
}

func (s *stream) send(t watch.EventType, object any) {
	if s.err == nil {
		s.err = s.enc.Encode(struct {
			Type   watch.EventType `json:"type"`
			Object any             `json:"object"`
		}{t, object})
	}
}

// flush sends the written events. It returns false if the client is gone.
func (s *stream) flush() bool {
	if s.err == nil {
		s.err = http.NewResponseController(s.w).Flush()
	}
	return s.err == nil
}

// eventRoutes reads the events of this node.
type eventRoutes struct{ events Events }

func (s eventRoutes) list(w http.ResponseWriter, r *http.Request) error {
	opts, err := listOptionsOf(r, selector.EventFields(&corev1.Event{}))
	if err != nil {
		return err
	}
	all, revision := s.events.List(event.Filter{})
	matching := slices.DeleteFunc(all, func(e corev1.Event) bool { return !opts.selector.Event(&e) })
	if opts.watch {
		return s.watch(w, r, opts, matching, revision)
	}
	answer.WriteJSON(w, http.StatusOK, corev1.EventList{
		TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(revision)},
		Items:    append([]corev1.Event{}, matching...),
	})
	return nil
}

// watch sends events in the way that podRoutes.watch sends pods. A repeated event is MODIFIED.
func (s eventRoutes) watch(w http.ResponseWriter, r *http.Request, opts listOptions, all []corev1.Event,
	revision uint64) error {
	ctx, cancel := opts.context(r)
	defer cancel()
	if opts.since != "" {
		if n, err := fmt.Sscan(opts.since, &revision); n != 1 || err != nil {
			return answer.BadRequest(fmt.Sprintf("resourceVersion %q is not one of this server", opts.since),
				"take one from a list of events, or watch without a resourceVersion")
		}
		all = nil
	}
	stream := newStream(w)
	for _, e := range all {
		stream.send(watch.Added, e)
	}
	if opts.bookmark && opts.since == "" {
		mark := corev1.Event{TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}, ObjectMeta: initialEventsEnd()}
		mark.ResourceVersion = fmt.Sprint(revision)
		stream.send(watch.Bookmark, mark)
	}
	if !stream.flush() {
		return nil
	}
	for e := range s.events.Watch(ctx, event.Filter{}, revision) {
		if !opts.selector.Event(&e) {
			continue
		}
		kind := watch.Added
		if e.Count > 1 {
			kind = watch.Modified
		}
		stream.send(kind, e)
		if !stream.flush() {
			break
		}
	}
	return nil
}
