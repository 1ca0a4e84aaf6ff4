package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Select filters a list or a watch. An empty field filters nothing.
type Select struct {
	Namespace string
	Name      string
	Labels    string // a Kubernetes label selector
	Fields    string // a Kubernetes field selector
}

func (s Select) query() url.Values {
	var all []string
	if s.Name != "" {
		all = append(all, "metadata.name="+s.Name)
	}
	if s.Fields != "" {
		all = append(all, s.Fields)
	}
	q := url.Values{}
	set(q, "labelSelector", s.Labels)
	set(q, "fieldSelector", strings.Join(all, ","))
	return q
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// list returns the path of the pods or events of a namespace, or of all if the namespace is empty.
func list(namespace, resource string) string {
	if namespace == "" {
		return "/api/v1/" + resource
	}
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/" + resource
}

// Pods lists pods by namespace and name.
func (c *Client) Pods(ctx context.Context, sel Select) (*corev1.PodList, error) {
	out := &corev1.PodList{}
	return out, c.call(ctx, http.MethodGet, list(sel.Namespace, "pods"), sel.query(), nil, out)
}

// Change is one report of a watch.
type Change[T any] struct {
	// Object is the current object, or the last state of a deleted one. It is nil if Synced.
	Object *T
	// New says that this is the first report of the object.
	New     bool
	Deleted bool
	// Synced says that every object that existed when the watch began has been reported.
	Synced bool
}

// WatchPods yields the existing pods, then Synced, then every change. The sequence ends when ctx ends. If
// the agent ends first, it yields an error.
func (c *Client) WatchPods(ctx context.Context, sel Select) iter.Seq2[Change[corev1.Pod], error] {
	return watchPath[corev1.Pod](ctx, c, list(sel.Namespace, "pods"), sel)
}

// Events lists events, the latest at the end.
func (c *Client) Events(ctx context.Context, sel Select) (*corev1.EventList, error) {
	out := &corev1.EventList{}
	return out, c.call(ctx, http.MethodGet, list(sel.Namespace, "events"), sel.query(), nil, out)
}

// WatchEvents yields events in the way that WatchPods yields pods.
func (c *Client) WatchEvents(ctx context.Context, sel Select) iter.Seq2[Change[corev1.Event], error] {
	return watchPath[corev1.Event](ctx, c, list(sel.Namespace, "events"), sel)
}

func watchPath[T any](ctx context.Context, c *Client, path string, sel Select) iter.Seq2[Change[T], error] {
	return func(yield func(Change[T], error) bool) {
		q := sel.query()
		q.Set("watch", "true")
		q.Set("allowWatchBookmarks", "true")
		resp, err := c.send(ctx, http.MethodGet, path, q)
		if err != nil {
			if ctx.Err() == nil {
				yield(Change[T]{}, err)
			}
			return
		}
		defer resp.Body.Close()
		for dec := json.NewDecoder(resp.Body); ; {
			var line struct {
				Type   watch.EventType `json:"type"`
				Object *T              `json:"object"`
			}
			err := dec.Decode(&line)
			switch {
			case err != nil && ctx.Err() != nil:
				return
			case err != nil:
				yield(Change[T]{}, c.connectError(unexpectedEnd(err)))
				return
			}
			change := Change[T]{Synced: true}
			if line.Type != watch.Bookmark {
				change = Change[T]{Object: line.Object, New: line.Type == watch.Added,
					Deleted: line.Type == watch.Deleted}
			}
			if !yield(change, nil) {
				return
			}
		}
	}
}

// unexpectedEnd turns io.EOF into io.ErrUnexpectedEOF: a watch has no regular end.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Apply configures an apply.
type Apply struct {
	// Namespace is used for pods without a namespace. A pod with another namespace is then an error.
	Namespace string
	// Origin names the source of the manifests in messages: a path, or "-".
	Origin string
	// Lease binds the pods to a held lease. Without a lease they survive a restart of the agent.
	Lease  string
	DryRun bool
	// Names returns the objects that the manifests name. It neither validates nor applies them.
	Names bool
}

// Apply creates or replaces the pods of manifests and the objects they name. It applies all of them or
// none.
func (c *Client) Apply(ctx context.Context, manifests []byte, opts Apply) ([]api.ApplyResult, error) {
	q := url.Values{}
	set(q, api.ParamNamespace, opts.Namespace)
	set(q, api.ParamOrigin, opts.Origin)
	set(q, api.ParamLease, opts.Lease)
	if opts.DryRun {
		q.Set("dryRun", metav1.DryRunAll)
	}
	if opts.Names {
		q.Set(api.ParamNames, "true")
	}
	var out api.ApplyResultList
	err := c.call(ctx, http.MethodPost, "/berth/v1/pods", q, bytes.NewReader(manifests), &out)
	return out.Items, err
}

// Explanations returns the decisions that admission would make now about the pods of manifests. It uses only the
// options Namespace and Origin.
func Explanations(ctx context.Context, c *Client, manifests []byte, opts Apply) ([]api.Explanation, error) {
	q := url.Values{}
	set(q, api.ParamNamespace, opts.Namespace)
	set(q, api.ParamOrigin, opts.Origin)
	var out api.ExplanationList
	err := c.call(ctx, http.MethodPost, "/berth/v1/explain", q, bytes.NewReader(manifests), &out)
	return out.Items, err
}

// Timelines lists the recorded starts of pods, oldest first, without their spans.
func (c *Client) Timelines(ctx context.Context) ([]timeline.Timeline, error) {
	var out api.TimelineList
	err := c.call(ctx, http.MethodGet, "/berth/v1/timelines", nil, nil, &out)
	return out.Items, err
}

// LastTimelines returns the latest n recorded starts of pods with their spans, oldest first.
func LastTimelines(ctx context.Context, c *Client, n int) ([]timeline.Timeline, error) {
	var out api.TimelineList
	err := c.call(ctx, http.MethodGet, "/berth/v1/timelines", url.Values{"last": {strconv.Itoa(n)}}, nil, &out)
	return out.Items, err
}

// Lease is a lease that this process holds. When its connection closes, the agent deletes the pods that
// were applied with its ID. That also happens when this process dies.
type Lease struct {
	ID   string
	body io.Closer
}

// Close ends the lease.
func (l *Lease) Close() { _ = l.body.Close() } // an error means that the connection is broken, and so closed

// Hold opens a lease. The lease ends with ctx, with Close, or with this process.
func (c *Client) Hold(ctx context.Context) (*Lease, error) {
	resp, err := c.send(ctx, http.MethodPost, "/berth/v1/leases", nil)
	if err != nil {
		return nil, err
	}
	var out api.Lease
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("open a lease: %w", err)
	}
	return &Lease{ID: out.ID, body: resp.Body}, nil
}
