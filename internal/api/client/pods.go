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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

func podPath(key types.NamespacedName) string {
	return list(key.Namespace, "pods") + "/" + url.PathEscape(key.Name)
}

// Pods lists pods by namespace and name.
func (c *Client) Pods(ctx context.Context, sel Select) (*corev1.PodList, error) {
	out := &corev1.PodList{}
	return out, c.call(ctx, http.MethodGet, list(sel.Namespace, "pods"), sel.query(), nil, out)
}

// Pod returns one pod.
func (c *Client) Pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	out := &corev1.Pod{}
	return out, c.call(ctx, http.MethodGet, podPath(key), nil, nil, out)
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
		resp, err := c.send(ctx, http.MethodGet, path, q, nil)
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

// Explanations returns what admission would decide now about the pods of manifests. It uses only the
// options Namespace and Origin.
func Explanations(ctx context.Context, c *Client, manifests []byte, opts Apply) ([]api.Explanation, error) {
	q := url.Values{}
	set(q, api.ParamNamespace, opts.Namespace)
	set(q, api.ParamOrigin, opts.Origin)
	var out api.ExplanationList
	err := c.call(ctx, http.MethodPost, "/berth/v1/explain", q, bytes.NewReader(manifests), &out)
	return out.Items, err
}

// Delete requests the deletion of a pod and returns the pod as it is then. A nil grace is the pod's own. If
// uid is not empty, it must match the pod's.
func (c *Client) Delete(ctx context.Context, key types.NamespacedName, uid types.UID,
	grace *time.Duration) (*corev1.Pod, error) {
	opts := metav1.DeleteOptions{}
	if uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	if grace != nil {
		seconds := int64(grace.Round(time.Second) / time.Second)
		opts.GracePeriodSeconds = &seconds
	}
	body, err := jsonBody(opts)
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	return out, c.call(ctx, http.MethodDelete, podPath(key), nil, body, out)
}

// LogOptions choose a container's log and the part of it to show.
type LogOptions struct {
	corev1.PodLogOptions
	// Instance chooses a container instance by its restart count. nil is the newest instance, or with
	// Previous the one before.
	Instance *int
}

// Logs copies a container's log to w. With opts.Follow it returns when the container ends or when ctx ends.
func (c *Client) Logs(ctx context.Context, key types.NamespacedName, opts LogOptions, w io.Writer) error {
	resp, err := c.send(ctx, http.MethodGet, podPath(key)+"/log", logQuery(opts), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.connectError(err)
	}
	if cause := resp.Trailer.Get(api.TrailerError); cause != "" {
		return fmt.Errorf("read log of container %q of pod %s: %s", opts.Container, key, cause)
	}
	return nil
}

func logQuery(o LogOptions) url.Values {
	q := url.Values{}
	if o.Instance != nil {
		q.Set(api.ParamInstance, strconv.Itoa(*o.Instance))
	}
	set(q, "container", o.Container)
	for name, on := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines,
		"limitBytes": o.LimitBytes} {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.UTC().Format(time.RFC3339Nano))
	}
	if o.Stream != nil {
		q.Set("stream", *o.Stream)
	}
	return q
}

// Timeline returns the last recorded start of a pod.
func (c *Client) Timeline(ctx context.Context, key types.NamespacedName) (*timeline.Timeline, error) {
	out := &timeline.Timeline{}
	path := "/berth/v1/pods/" + url.PathEscape(key.Namespace) + "/" + url.PathEscape(key.Name) + "/timeline"
	return out, c.call(ctx, http.MethodGet, path, nil, nil, out)
}

// Timelines lists the recorded starts of pods, oldest first, without their spans.
func (c *Client) Timelines(ctx context.Context) ([]timeline.Timeline, error) {
	var out api.TimelineList
	err := c.call(ctx, http.MethodGet, "/berth/v1/timelines", nil, nil, &out)
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
	resp, err := c.send(ctx, http.MethodPost, "/berth/v1/leases", nil, nil)
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
