package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/timeline"
)

// DefaultTimeout is how long one hook may run.
const DefaultTimeout = 10 * time.Second

// The moments of a container's life. The directories have these names.
const (
	preCreate = "pre-create"
	preStart  = "pre-start"
	preStop   = "pre-stop"
	postStop  = "post-stop"
)

// Options of Hooks.
type Options struct {
	// Dir contains the directories pre-create, pre-start, pre-stop and post-stop. None of them needs to exist.
	Dir string
	// Timeout is the limit for one hook. Default DefaultTimeout.
	Timeout time.Duration
	// Log is never nil.
	Log *slog.Logger
}

// Hooks runs the hooks of a node.
type Hooks struct {
	dir     string
	timeout time.Duration
	log     *slog.Logger
}

// New returns a Hooks. It reads no directory before a hook is due.
func New(o Options) *Hooks {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	return &Hooks{dir: o.Dir, timeout: o.Timeout, log: o.Log}
}

// message is the input of a hook, which it reads from standard input.
type message struct {
	Hook string      `json:"hook"`
	Pod  *corev1.Pod `json:"pod,omitempty"`
	// Container is the container in the pod's spec, and Kind the list that it is in: "container", "init container",
	// "sidecar" or "ephemeral container".
	Container *corev1.Container `json:"container,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Attempt   uint32            `json:"attempt,omitempty"` // restart count, before create
	ID        string            `json:"id,omitempty"`      // container id, once created
}

// PreCreate lets the hooks refuse a container or change its configuration. Each hook receives the pod's spec unchanged,
// without the answers of earlier hooks.
func (h *Hooks) PreCreate(ctx context.Context, p *corev1.Pod, c pod.Container,
	config *runtimeapi.ContainerConfig) error {
	m := message{Hook: preCreate, Pod: p, Container: c.Container, Kind: c.Kind.String(),
		Attempt: config.GetMetadata().GetAttempt()}
	return h.each(ctx, m, func(name string, output []byte) error {
		answer, err := parse(output)
		if err != nil {
			return fmt.Errorf("hook %s: read its answer: %w", name, err)
		}
		answer.apply(config)
		return nil
	})
}

// PreStart lets the hooks refuse the start of a created container.
func (h *Hooks) PreStart(ctx context.Context, p *corev1.Pod, c pod.Container, id string) error {
	return h.each(ctx, message{Hook: preStart, Pod: p, Container: c.Container, Kind: c.Kind.String(), ID: id}, silent)
}

// PreStop notifies the hooks that a container is about to be stopped.
func (h *Hooks) PreStop(ctx context.Context, id string) error {
	return h.each(ctx, message{Hook: preStop, ID: id}, silent)
}

// PostStop notifies the hooks that a container has stopped.
func (h *Hooks) PostStop(ctx context.Context, id string) error {
	return h.each(ctx, message{Hook: postStop, ID: id}, silent)
}

func silent(name string, output []byte) error {
	if text := strings.TrimSpace(string(output)); text != "" {
		return fmt.Errorf("hook %s: only pre-create hooks may answer, and it wrote %q", name,
			text[:min(len(text), 200)])
	}
	return nil
}

// each runs the hooks of a moment in lexical order until one fails.
func (h *Hooks) each(ctx context.Context, m message, read func(name string, output []byte) error) error {
	names, err := h.names(m.Hook)
	if err != nil || len(names) == 0 {
		return err
	}
	input, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write the message for %s hooks: %w", m.Hook, err)
	}
	for _, name := range names {
		err := func() (err error) {
			ctx, span := timeline.Start(ctx, name, timeline.KindHook.Attr())
			defer func() { timeline.End(span, err) }()
			output, err := h.run(ctx, m.Hook, name, input)
			if err != nil {
				return err
			}
			return read(name, output)
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

// names returns the hooks of a moment as MOMENT/FILE. Only executable files are hooks. A missing directory has none. A
// link without a target is no hook: it is logged, and blocks no container.
func (h *Hooks) names(moment string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(h.dir, moment))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s hooks: %w", moment, err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(h.dir, moment, e.Name())
		info, err := os.Stat(path) // follows links
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP):
			h.log.Warn("link in the hooks directory leads nowhere, no hook is run for it", "path", path, "err", err)
			continue
		case err != nil:
			return nil, fmt.Errorf("list %s hooks: %w", moment, err)
		}
		if info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			names = append(names, filepath.Join(moment, e.Name()))
		}
	}
	return names, nil
}
