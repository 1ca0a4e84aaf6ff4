package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/server/api"
)

func (s *Server) podLog(w http.ResponseWriter, r *http.Request) error {
	opts, err := logOptions(r)
	if err != nil {
		return err
	}
	p, _, err := s.pod(r)
	if err != nil {
		return err
	}
	c, err := chooseContainer(p, opts.Container)
	if err != nil {
		return err
	}
	opts.Container = c.Name
	if err := checkLog(p, opts); err != nil {
		return err
	}
	out := &logWriter{w: w}
	err = s.Logs.Logs(r.Context(), p, opts, out)
	if err == nil || r.Context().Err() != nil {
		out.begin()
		return nil
	}
	if !out.begun {
		return err
	}
	w.Header().Set(http.TrailerPrefix+api.TrailerError, strings.ReplaceAll(err.Error(), "\n", " "))
	return nil
}

func logOptions(r *http.Request) (*corev1.PodLogOptions, error) {
	q := queryOf(r)
	opts := &corev1.PodLogOptions{
		Container:    q.Get("container"),
		Follow:       q.flag("follow", false),
		Previous:     q.flag("previous", false),
		Timestamps:   q.flag("timestamps", false),
		SinceSeconds: q.number("sinceSeconds", 1),
		SinceTime:    q.time("sinceTime"),
		TailLines:    q.number("tailLines", 0),
		LimitBytes:   q.number("limitBytes", 1),
	}
	switch stream := q.Get("stream"); stream {
	case "":
	case corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr:
		opts.Stream = &stream
	default:
		q.bad("stream", "All, Stdout or Stderr")
	}
	if opts.SinceSeconds != nil && opts.SinceTime != nil && q.err == nil {
		q.err = BadRequest("sinceSeconds and sinceTime exclude each other", "give one of them")
	}
	return opts, q.err
}

// checkLog says why a container has no log to read, in the words of the Kubernetes API.
func checkLog(p *corev1.Pod, opts *corev1.PodLogOptions) error {
	st, _ := containerStatus(p, opts.Container)
	describe := fmt.Sprintf("see why with \"berth describe pod %s -n %s\"", p.Name, p.Namespace)
	if opts.Previous {
		if st.LastTerminationState.Terminated == nil {
			return BadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", opts.Container, p.Name),
				"it has not been restarted; leave out --previous")
		}
		return nil
	}
	if st.State.Running != nil || st.State.Terminated != nil || st.LastTerminationState.Terminated != nil {
		return nil
	}
	why := "its pod is " + strings.ToLower(string(p.Status.Phase))
	if w := st.State.Waiting; w != nil && w.Reason != "" {
		why = w.Reason
	}
	return BadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", opts.Container, p.Name, why), describe)
}

// logWriter sends each piece at once, and notes whether the answer has begun.
type logWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (l *logWriter) begin() {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		l.w.WriteHeader(http.StatusOK)
	}
}

func (l *logWriter) Write(data []byte) (int, error) {
	l.begin()
	n, err := l.w.Write(data)
	if err == nil {
		err = http.NewResponseController(l.w).Flush()
	}
	return n, err
}

var _ io.Writer = (*logWriter)(nil)

func (s *Server) podExec(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	opts := &corev1.PodExecOptions{
		Container: q.Get("container"),
		Command:   q.Values["command"],
		Stdin:     q.flag("stdin", false),
		Stdout:    q.flag("stdout", true),
		Stderr:    q.flag("stderr", true),
		TTY:       q.flag("tty", false),
	}
	if len(opts.Command) == 0 && q.err == nil {
		q.err = BadRequest("no command to run", "give one or more command parameters")
	}
	if q.err != nil {
		return q.err
	}
	opts.Stderr = opts.Stderr && !opts.TTY // a terminal has one output
	p, _, err := s.pod(r)
	if err != nil {
		return err
	}
	c, err := chooseContainer(p, opts.Container)
	if err != nil {
		return err
	}
	opts.Container = c.Name
	if st, _ := containerStatus(p, c.Name); st.State.Running == nil {
		return BadRequest(fmt.Sprintf("container %q of pod %s is not running", c.Name, pod.FullName(p)),
			fmt.Sprintf("see why with \"berth describe pod %s -n %s\"", p.Name, p.Namespace))
	}
	url, err := s.Exec.ExecURL(r.Context(), p, opts)
	if err != nil {
		return fmt.Errorf("prepare command in container %q of pod %s: %w", c.Name, pod.FullName(p), err)
	}
	writeJSON(w, http.StatusOK, api.Exec{TypeMeta: api.Type("Exec"), URL: url})
	return nil
}
