package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/model/pod"
)

// Streams prepares connections into pods. Each method returns the URL of the runtime's streaming server, where the
// client then connects.
type Streams interface {
	// ExecURL prepares a command. opts.Container is a running container of the pod.
	ExecURL(ctx context.Context, p *corev1.Pod, opts *corev1.PodExecOptions) (string, error)
	// AttachURL prepares a connection to the main process of a running container.
	AttachURL(ctx context.Context, p *corev1.Pod, opts *corev1.PodAttachOptions) (string, error)
	// PortForwardURL prepares connections to ports of the pod.
	PortForwardURL(ctx context.Context, p *corev1.Pod) (string, error)
}

// Files reads and writes files of a running container, with the paths that its processes see. Streams have
// the format of package archive.
type Files interface {
	Pack(ctx context.Context, p *corev1.Pod, container, path string, w io.Writer) error
	// Unpack writes a stream to the target's path. If the path is a directory, the files go into it under
	// the target's name. It returns the files that were left out, with the reason.
	Unpack(ctx context.Context, p *corev1.Pod, f FileTarget, r io.Reader) (skipped []string, err error)
}

// FileTarget is a place in a container.
type FileTarget struct{ Container, Path, Name string }

// running returns the pod that a request names and its running container of that name.
func (s podRoutes) running(r *http.Request, name string) (*corev1.Pod, pod.Container, error) {
	p, _, err := s.pod(r)
	if err != nil {
		return nil, pod.Container{}, err
	}
	c, err := containers.Running(p, name)
	return p, c, err
}

func (s podRoutes) podExec(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	opts := &corev1.PodExecOptions{
		Container: q.Get("container"),
		Command:   q.Values["command"],
		Stdin:     q.Flag("stdin", false),
		Stdout:    q.Flag("stdout", true),
		Stderr:    q.Flag("stderr", true),
		TTY:       q.Flag("tty", false),
	}
	if len(opts.Command) == 0 && q.Err == nil {
		q.Err = answer.BadRequest("no command to run", "give one or more command parameters")
	}
	if q.Err != nil {
		return q.Err
	}
	opts.Stderr = opts.Stderr && !opts.TTY // a terminal has a single output stream
	p, c, err := s.running(r, opts.Container)
	if err != nil {
		return err
	}
	opts.Container = c.Name
	url, err := s.Streams.ExecURL(r.Context(), p, opts)
	if err != nil {
		return fmt.Errorf("prepare command in container %q of pod %s: %w", c.Name, pod.FullName(p), err)
	}
	return answerURL(w, url)
}

// podAttach connects to a container's main process. The process has a terminal and standard input only if
// the manifest asks for them.
func (s podRoutes) podAttach(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	opts := &corev1.PodAttachOptions{
		Container: q.Get("container"),
		Stdin:     q.Flag("stdin", false),
		Stdout:    q.Flag("stdout", true),
		Stderr:    q.Flag("stderr", true),
	}
	if q.Err != nil {
		return q.Err
	}
	p, c, err := s.running(r, opts.Container)
	if err != nil {
		return err
	}
	if opts.Stdin && !c.Stdin {
		return answer.BadRequest(fmt.Sprintf("container %q of pod %s has no standard input", c.Name, pod.FullName(p)),
			"attach without -i, or set stdin: true in its manifest")
	}
	opts.Container, opts.TTY = c.Name, c.TTY
	opts.Stderr = opts.Stderr && !opts.TTY
	url, err := s.Streams.AttachURL(r.Context(), p, opts)
	if err != nil {
		return fmt.Errorf("attach to container %q of pod %s: %w", c.Name, pod.FullName(p), err)
	}
	return answerURL(w, url)
}

func (s podRoutes) podPortForward(w http.ResponseWriter, r *http.Request) error {
	p, _, err := s.pod(r)
	if err != nil {
		return err
	}
	if p.Status.Phase != corev1.PodRunning {
		return answer.BadRequest(fmt.Sprintf("pod %s is %s, not Running", pod.FullName(p), p.Status.Phase),
			fmt.Sprintf("see why with \"berth describe pod %s -n %s\"", p.Name, p.Namespace))
	}
	url, err := s.Streams.PortForwardURL(r.Context(), p)
	if err != nil {
		return fmt.Errorf("forward ports of pod %s: %w", pod.FullName(p), err)
	}
	return answerURL(w, url)
}

func answerURL(w http.ResponseWriter, url string) error {
	answer.WriteJSON(w, http.StatusOK, api.Stream{TypeMeta: api.Type("Stream"), URL: url})
	return nil
}

func (s podRoutes) packFiles(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	path := q.Get("path")
	if path == "" {
		return answer.BadRequest("no path to read", "give the path parameter")
	}
	p, c, err := s.running(r, q.Get("container"))
	if err != nil {
		return err
	}
	out := &archiveWriter{w: w}
	err = s.Files.Pack(r.Context(), p, c.Name, path, out)
	if err != nil {
		err = fmt.Errorf("read %s in container %q of pod %s: %w", path, c.Name, pod.FullName(p), err)
	}
	return out.end(err)
}

func (s podRoutes) unpackFiles(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	f := FileTarget{Path: q.Get("path"), Name: q.Get("name")}
	if f.Path == "" || f.Name == "" {
		return answer.BadRequest("no place to write to", "give the path and name parameters")
	}
	p, c, err := s.running(r, q.Get("container"))
	if err != nil {
		return err
	}
	f.Container = c.Name
	skipped, err := s.Files.Unpack(r.Context(), p, f, r.Body)
	if err != nil {
		// The client reads the answer only after it has sent everything, so read the rest of its stream.
		_, drainErr := io.Copy(io.Discard, r.Body)
		return errors.Join(fmt.Errorf("write %s in container %q of pod %s: %w", f.Path, c.Name, pod.FullName(p), err),
			drainErr)
	}
	answer.WriteJSON(w, http.StatusOK, api.Copied{TypeMeta: api.Type("Copied"), Skipped: skipped})
	return nil
}
