package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-run/berth/internal/api"
)

// Images is the image store of the agent.
type Images struct{ *Client }

// Images returns the image store.
func (c *Client) Images() Images { return Images{c} }

// List lists the images of the runtime.
func (c Images) List(ctx context.Context) ([]api.Image, error) {
	var out api.ImageList
	err := c.call(ctx, http.MethodGet, "/berth/v1/images", nil, nil, &out)
	return out.Items, err
}

// Load sends an image archive and returns the loaded images.
func (c Images) Load(ctx context.Context, archive io.Reader) ([]api.Image, error) {
	var out api.ImageList
	err := c.call(ctx, http.MethodPost, "/berth/v1/images", nil, io.NopCloser(archive), &out)
	return out.Items, err
}

// Save writes images as an archive. After an error, the output is incomplete and must be discarded.
func (c Images) Save(ctx context.Context, names []string, archive io.Writer) error {
	resp, err := c.send(ctx, http.MethodGet, "/berth/v1/images/archive", url.Values{"name": names})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(archive, resp.Body); err != nil {
		return fmt.Errorf("save images: %w", err)
	}
	if text := resp.Trailer.Get(api.TrailerError); text != "" {
		return errors.New(text)
	}
	return nil
}

// Pull asks the agent to pull an image and waits for the result. It calls progress for each report until
// then.
func (c Images) Pull(ctx context.Context, name string, progress func(api.Pull)) (*api.Image, error) {
	resp, err := c.send(ctx, http.MethodPost, "/berth/v1/images/pull", url.Values{"name": {name}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var p api.Pull
		switch err := lines.Decode(&p); {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, c.connectError(err)
		case p.Error != nil:
			return nil, &apierrors.StatusError{ErrStatus: *p.Error}
		case p.Image != nil:
			return p.Image, nil
		}
		progress(p)
	}
}

// Pulls lists the image pulls under way.
func (c Images) Pulls(ctx context.Context) ([]api.Pull, error) {
	var out api.PullList
	err := c.call(ctx, http.MethodGet, "/berth/v1/pulls", nil, nil, &out)
	return out.Items, err
}

// Remove removes an image with all its names and returns the removed image.
func (c Images) Remove(ctx context.Context, name string, force bool) ([]api.Image, error) {
	var out api.ImageList
	err := c.call(ctx, http.MethodDelete, "/berth/v1/images",
		url.Values{"name": {name}, "force": {strconv.FormatBool(force)}}, nil, &out)
	return out.Items, err
}

// Prune removes the unused images and returns them. Images that were loaded from archives are removed only
// with all.
func (c Images) Prune(ctx context.Context, all bool) ([]api.Image, error) {
	var out api.ImageList
	err := c.call(ctx, http.MethodPost, "/berth/v1/images/prune", url.Values{"all": {strconv.FormatBool(all)}}, nil,
		&out)
	return out.Items, err
}

// Usage returns the disk space that images use.
func (c Images) Usage(ctx context.Context) (*api.ImageUsage, error) {
	var out api.ImageUsage
	return &out, c.call(ctx, http.MethodGet, "/berth/v1/images/usage", nil, nil, &out)
}
