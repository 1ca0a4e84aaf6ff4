package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
)

// Period is the time between two measurements while a client watches.
const Period = 5 * time.Second

// soon is the time between the first two measurements for a new client. CPU usage needs two.
const soon = time.Second

// Stats measures usage.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
}

// Feed measures what pods use, for the clients that watch it. Its methods may be called from any goroutine.
type Feed struct {
	stats Stats
	turn  chan measured // has the last measurement, unless a client measures
}

// measured is a measurement.
type measured struct {
	usage api.Usage
	due   time.Time // when the next measurement is due
}

// New returns a Feed that has not measured yet.
func New(stats Stats) *Feed {
	f := &Feed{stats: stats, turn: make(chan measured, 1)}
	f.turn <- measured{}
	return f
}

// Stream answers GET /berth/v1/usage: a line with an api.Usage at once, and one after each measurement.
func (f *Feed) Stream(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	w.Header().Set("Content-Type", "application/json")
	lines, flusher := json.NewEncoder(w), http.NewResponseController(w)
	next := time.NewTimer(0)
	defer next.Stop()
	for begun := false; ; begun = true {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		m, err := f.current(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && begun:
			answer.SetErrorTrailer(w, err)
			return nil
		case err != nil:
			return err
		}
		if lines.Encode(m.usage) != nil || flusher.Flush() != nil {
			return nil // the client is gone
		}
		next.Reset(time.Until(m.due))
	}
}

// current returns the last measurement, or a new one if it is due.
func (f *Feed) current(ctx context.Context) (m measured, err error) {
	select {
	case <-ctx.Done():
		return m, context.Cause(ctx)
	case m = <-f.turn:
	}
	defer func() { f.turn <- m }()
	now := time.Now()
	if now.Before(m.due) {
		return m, nil
	}
	summary, err := f.stats.Summary(ctx, true)
	if err != nil {
		return m, fmt.Errorf("measure the pods: %w", err)
	}
	wait := Period
	if now.Sub(m.due) > Period { // no client has watched
		wait = soon
	}
	m = measured{usageOf(summary, now), now.Add(wait)}
	return m, nil
}

// usageOf returns the pods' part of a summary.
func usageOf(summary *statsapi.Summary, at time.Time) api.Usage {
	u := api.Usage{TypeMeta: api.Type("Usage"), Time: metav1.NewTime(at),
		Pods: make(map[types.UID]api.PodUsage, len(summary.Pods))}
	for i := range summary.Pods {
		p, one := &summary.Pods[i], api.PodUsage{}
		if p.CPU != nil {
			one.CPU = p.CPU.UsageNanoCores
		}
		if p.Memory != nil {
			one.Memory = p.Memory.WorkingSetBytes
		}
		u.Pods[types.UID(p.PodRef.UID)] = one
	}
	return u
}
