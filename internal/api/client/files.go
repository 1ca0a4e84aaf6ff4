package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/berth-run/berth/internal/api"
)

// ReadFiles reads path in the container. It calls take with a stream in the format of package archive.
func (c Container) ReadFiles(ctx context.Context, path string, take func(io.Reader) error) error {
	q := url.Values{"path": {path}}
	set(q, "container", c.name)
	resp, err := c.pod.client.send(ctx, http.MethodGet, c.pod.ownPath("files"), q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = take(resp.Body)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		_, drainErr := io.Copy(io.Discard, resp.Body) // the trailer follows the padding
		if cause := resp.Trailer.Get(api.TrailerError); cause != "" {
			return errors.New(cause)
		}
		err = errors.Join(err, drainErr)
	}
	return err
}

// WriteFiles writes a stream in the format of package archive to path in the container. If path is a
// directory, the files go into it under the given name. It returns the files that were left out.
func (c Container) WriteFiles(ctx context.Context, path, name string, stream io.Reader) (skipped []string, err error) {
	q := url.Values{"path": {path}, "name": {name}}
	set(q, "container", c.name)
	var copied api.Copied
	err = c.pod.client.call(ctx, http.MethodPut, c.pod.ownPath("files"), q, stream, &copied)
	return copied.Skipped, err
}

// Checkpoint writes the state of the running container as an archive, whose format is the runtime's. After an error,
// the output is incomplete and must be discarded.
func (c Container) Checkpoint(ctx context.Context, archive io.Writer) error {
	q := url.Values{}
	set(q, "container", c.name)
	resp, err := c.pod.client.send(ctx, http.MethodPost, c.pod.ownPath("checkpoint"), q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(archive, resp.Body); err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	if cause := resp.Trailer.Get(api.TrailerError); cause != "" {
		return errors.New(cause)
	}
	return nil
}
