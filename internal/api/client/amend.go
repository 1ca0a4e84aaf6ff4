package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
)

// Resize requests other CPU and memory for a container, and returns the pod with the new spec. The pod's
// status shows later whether the node could apply it.
func (c *Client) Resize(ctx context.Context, key types.NamespacedName, r api.Resize) (*corev1.Pod, error) {
	return c.amend(ctx, key, "resize", r)
}

// AddEphemeral adds an ephemeral container to a pod and returns the changed pod.
func (c *Client) AddEphemeral(ctx context.Context, key types.NamespacedName, e corev1.EphemeralContainer) (*corev1.Pod,
	error) {
	return c.amend(ctx, key, "ephemeralcontainers", e)
}

func (c *Client) amend(ctx context.Context, key types.NamespacedName, what string, body any) (*corev1.Pod, error) {
	var data io.Reader
	data, err := jsonBody(body)
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	path := "/berth/v1/pods/" + url.PathEscape(key.Namespace) + "/" + url.PathEscape(key.Name) + "/" + what
	return out, c.call(ctx, http.MethodPost, path, nil, data, out)
}
