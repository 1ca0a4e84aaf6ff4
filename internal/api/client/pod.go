package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Pod is one pod of the agent, by its name. It need not exist.
type Pod struct {
	client *Client
	key    types.NamespacedName
}

// Pod returns a handle of a pod.
func (c *Client) Pod(key types.NamespacedName) Pod { return Pod{c, key} }

// path returns the pod's path in the Kubernetes API.
func (p Pod) path() string { return list(p.key.Namespace, "pods") + "/" + url.PathEscape(p.key.Name) }

// ownPath returns the path of a part of the pod in the agent's own API.
func (p Pod) ownPath(part string) string {
	return "/berth/v1/pods/" + url.PathEscape(p.key.Namespace) + "/" + url.PathEscape(p.key.Name) + "/" + part
}

// Get returns the pod.
func (p Pod) Get(ctx context.Context) (*corev1.Pod, error) {
	out := &corev1.Pod{}
	return out, p.client.call(ctx, http.MethodGet, p.path(), nil, nil, out)
}

// Delete requests the deletion of a pod and returns the pod as it is then. A nil grace is the pod's own. If
// uid is not empty, it must match the pod's.
func (p Pod) Delete(ctx context.Context, uid types.UID, grace *time.Duration) (*corev1.Pod, error) {
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
	return out, p.client.call(ctx, http.MethodDelete, p.path(), nil, body, out)
}

// Resize requests other CPU and memory for a container, and returns the pod with the new spec. The pod's
// status shows later whether the node could apply it.
func (p Pod) Resize(ctx context.Context, r api.Resize) (*corev1.Pod, error) {
	return p.amend(ctx, "resize", r)
}

// AddEphemeral adds an ephemeral container to a pod and returns the changed pod.
func (p Pod) AddEphemeral(ctx context.Context, e corev1.EphemeralContainer) (*corev1.Pod,
	error) {
	return p.amend(ctx, "ephemeralcontainers", e)
}

func (p Pod) amend(ctx context.Context, what string, body any) (*corev1.Pod, error) {
	var data io.Reader
	data, err := jsonBody(body)
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	path := p.ownPath(what)
	return out, p.client.call(ctx, http.MethodPost, path, nil, data, out)
}

// SetCondition sets a pod condition that the agent does not compute, such as one of a readiness gate, and
// returns the changed pod.
func (p Pod) SetCondition(ctx context.Context, condition corev1.PodCondition) (*corev1.Pod, error) {
	return p.amend(ctx, "conditions", condition)
}

// LogOptions choose a container's log and the part of it to show.
type LogOptions struct {
	corev1.PodLogOptions
	// Instance chooses a container instance by its restart count. nil is the newest instance, or with
	// Previous the one before.
	Instance *int
}

// Logs copies a container's log to w. With opts.Follow it returns when the container ends or when ctx ends.
func (p Pod) Logs(ctx context.Context, opts LogOptions, w io.Writer) error {
	resp, err := p.client.send(ctx, http.MethodGet, p.path()+"/log", logQuery(opts))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return p.client.connectError(err)
	}
	if cause := resp.Trailer.Get(api.TrailerError); cause != "" {
		return fmt.Errorf("read log of container %q of pod %s: %s", opts.Container, p.key, cause)
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
func (p Pod) Timeline(ctx context.Context) (*timeline.Timeline, error) {
	out := &timeline.Timeline{}
	path := p.ownPath("timeline")
	return out, p.client.call(ctx, http.MethodGet, path, nil, nil, out)
}
