package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/crash"
	"github.com/berth-run/berth/internal/record/event"
)

// endPatience is how long the parts of the agent may take to end. The systemd unit (internal/cli/setup/berth.service)
// gives the process 30 s.
const endPatience = 20 * time.Second

// AgentPanicked is the reason of the event that reports the panic of the previous agent.
const AgentPanicked = "AgentPanicked"

// running is the set of parts that have not ended.
type running struct {
	mu    sync.Mutex
	parts map[string]bool
}

func (r *running) begin(name string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == nil {
		r.parts = map[string]bool{}
	}
	r.parts[name] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.parts, name)
	}
}

func (r *running) names() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.parts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// bounded calls run with a context, and returns its error. If run takes longer than patience after the context has
// ended, bounded leaves it behind and calls left: a part waits for a call that does not return, such as a read from a
// file system whose server is gone. The end of the process ends that too.
func bounded(ctx context.Context, patience time.Duration, run func(context.Context, context.CancelFunc) error,
	left func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, cancel) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		left()
		return nil
	}
}

// readCrashes reports the panic of the agent before this one, and returns the reports of all panics. From then on the
// text of a panic of this agent is kept in dir. An agent that cannot keep it runs without.
func readCrashes(dir, node string, events event.Sink, log *slog.Logger) []crash.Report {
	reports, fresh, err := crash.Open(dir)
	if err != nil {
		log.Error("cannot keep all reports of panics, continuing", "err", err)
	}
	if fresh != nil {
		log.Error("the previous agent ended with a panic", "at", fresh.Time, "panic", fresh.Cause, "subject",
			fresh.Subject, "report", fresh.File)
		events.Event(event.NodeRef(node), corev1.EventTypeWarning, AgentPanicked,
			"the previous agent ended with a panic at %s: %s; its stack is in %s",
			fresh.Time.UTC().Format(time.RFC3339), fresh.Cause, fresh.File)
		if s, ok := pod.ParseSubject(fresh.Subject); ok {
			events.Event(s.Ref(), corev1.EventTypeWarning, AgentPanicked,
				"the previous agent ended with a panic while it worked on this pod: %s; its stack is in %s",
				fresh.Cause, fresh.File)
		}
	}
	return reports
}
