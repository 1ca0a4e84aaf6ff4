package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Logs answers requests for the logs of containers.
type Logs struct {
	// Pods is the table of the node's pods, which shows the end of a followed container.
	Pods *store.Table[types.NamespacedName, *corev1.Pod]
	// Dir holds the pods' log directories.
	Dir string
	Log *slog.Logger
}

// Request chooses a part of a pod's logs. Instance is the restart count of the container instance. nil
// is the newest instance, or with Options.Previous the one before.
type Request struct {
	Pod      *corev1.Pod
	Options  *corev1.PodLogOptions
	Instance *int64
}

// Serve writes a log. If it has written nothing, it returns the error to answer. A followed log ends with
// its container, or with the request.
func (l Logs) Serve(w http.ResponseWriter, r *http.Request, req Request) error {
	p := req.Pod
	c, err := containers.Choose(p, req.Options.Container)
	if err != nil {
		return err
	}
	opts := *req.Options
	opts.Container = c.Name
	instance, err := chooseInstance(p, &opts, req.Instance)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	read := readOptions(&opts, time.Now())
	read.Log = l.Log
	if opts.Follow {
		ended := make(chan struct{})
		read.Ended = ended
		followers.Go(func() { l.waitEnd(ctx, p, c.Name, instance); close(ended) })
	}
	out := &logWriter{w: w}
	dir := podlog.PodDir(l.Dir, p.Namespace, p.Name, p.UID)
	err = podlog.Read(ctx, filepath.Join(dir, podlog.File(c.Name, instance)), read, out)
	if errors.Is(err, fs.ErrNotExist) {
		err = answer.Next(apierrors.NewNotFound(schema.GroupResource{Resource: "log"},
			fmt.Sprintf("%s/%s/%d", pod.FullName(p), c.Name, instance)),
			"logs of earlier instances are removed with their containers")
	}
	if err == nil || r.Context().Err() != nil {
		out.begin()
		return nil
	}
	if !out.begun {
		return err
	}
	answer.SetErrorTrailer(w, err)
	return nil
}

// waitEnd returns when the n-th instance of a container has ended or when ctx ends.
func (l Logs) waitEnd(ctx context.Context, p *corev1.Pod, container string, n int) {
	watcher := l.Pods.WatchKey(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	defer watcher.Stop()
	for {
		changes, err := watcher.Next(ctx)
		if err != nil {
			return
		}
		for _, c := range changes {
			if c.Deleted || c.Value.UID != p.UID || instanceEnded(c.Value, container, n) {
				return
			}
		}
	}
}

// Options reads the parameters of a request for a log. As in the Kubernetes API, a value that cannot be
// parsed is a bad request, and a value out of range is invalid.
func Options(r *http.Request) (opts *corev1.PodLogOptions, instance *int64, err error) {
	q := query.Of(r)
	instance = q.Number(api.ParamInstance, 0)
	opts = &corev1.PodLogOptions{
		Container:    q.Get("container"),
		Follow:       q.Flag("follow", false),
		Previous:     q.Flag("previous", false),
		Timestamps:   q.Flag("timestamps", false),
		SinceSeconds: q.Number("sinceSeconds", 1),
		SinceTime:    q.Time("sinceTime"),
		TailLines:    q.Number("tailLines", 0),
		LimitBytes:   q.Number("limitBytes", 1),
	}
	switch stream := q.Get("stream"); stream {
	case "":
	case corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr:
		opts.Stream = &stream
	default:
		q.Bad(answer.Invalid, "stream", "All, Stdout or Stderr")
	}
	switch {
	case q.Err != nil:
	case opts.SinceSeconds != nil && opts.SinceTime != nil:
		q.Err = answer.Invalid("sinceSeconds and sinceTime exclude each other", "give one of them")
	case opts.Previous && instance != nil:
		q.Err = answer.BadRequest("previous and instance exclude each other", "give one of them")
	}
	return opts, instance, q.Err
}

// logWriter sends each piece at once and records whether the answer has begun.
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
