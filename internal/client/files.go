package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/server/api"
)

func filesPath(key types.NamespacedName) string {
	return "/berth/v1/pods/" + url.PathEscape(key.Namespace) + "/" + url.PathEscape(key.Name) + "/files"
}

// ReadFiles hands the stream (package archive) of what is at path in a container
// to take.
func (c *Client) ReadFiles(ctx context.Context, key types.NamespacedName, container, path string, take func(io.Reader) error) error {
	q := url.Values{"path": {path}}
	set(q, "container", container)
	resp, err := c.send(ctx, http.MethodGet, filesPath(key), q, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = take(resp.Body)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		_, drainErr := io.Copy(io.Discard, resp.Body) // the trailer comes behind the padding
		if cause := resp.Trailer.Get(api.TrailerError); cause != "" {
			return errors.New(cause)
		}
		err = errors.Join(err, drainErr)
	}
	return err
}

// WriteFiles puts what is in a stream (package archive) at path in a container,
// or by the name into the directory that is there. It returns what was left out.
func (c *Client) WriteFiles(ctx context.Context, key types.NamespacedName, container, path, name string, stream io.Reader) (skipped []string, err error) {
	q := url.Values{"path": {path}, "name": {name}}
	set(q, "container", container)
	var copied api.Copied
	err = c.call(ctx, http.MethodPut, filesPath(key), q, stream, &copied)
	return copied.Skipped, err
}
