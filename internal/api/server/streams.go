package server

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
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

// streamRoutes prepares connections into pods.
type streamRoutes struct {
	podTable
	streams Streams
}

func (s streamRoutes) exec(w http.ResponseWriter, r *http.Request) error {
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
	url, err := s.streams.ExecURL(r.Context(), p, opts)
	if err != nil {
		return fmt.Errorf("prepare command in container %q of pod %s: %w", c.Name, pod.FullName(p), err)
	}
	return answerURL(w, url)
}

// attach connects to a container's main process. The process has a terminal and standard input only if
// the manifest asks for them.
func (s streamRoutes) attach(w http.ResponseWriter, r *http.Request) error {
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
	url, err := s.streams.AttachURL(r.Context(), p, opts)
	if err != nil {
		return fmt.Errorf("attach to container %q of pod %s: %w", c.Name, pod.FullName(p), err)
	}
	return answerURL(w, url)
}

func (s streamRoutes) portForward(w http.ResponseWriter, r *http.Request) error {
	p, _, err := s.pod(r)
	if err != nil {
		return err
	}
	if p.Status.Phase != corev1.PodRunning {
		return answer.BadRequest(fmt.Sprintf("pod %s is %s, not Running", pod.FullName(p), p.Status.Phase),
			fmt.Sprintf("see why with \"berth describe pod %s -n %s\"", p.Name, p.Namespace))
	}
	url, err := s.streams.PortForwardURL(r.Context(), p)
	if err != nil {
		return fmt.Errorf("forward ports of pod %s: %w", pod.FullName(p), err)
	}
	return answerURL(w, url)
}

func answerURL(w http.ResponseWriter, url string) error {
	answer.WriteJSON(w, http.StatusOK, api.Stream{TypeMeta: api.Type("Stream"), URL: url})
	return nil
}
