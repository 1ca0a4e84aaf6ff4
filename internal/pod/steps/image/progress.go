package image

import (
	"context"
	"slices"
	"strings"
	"time"
)

// progress reports how far the pulls of an image are, in bytes. A total of 0 is not known yet.
type progress interface {
	PullProgress(image string) (fetched, total, unpacked int64)
}

// tick is the time between two samples of a pull.
const tick = time.Second

// Pull is the state of a running pull.
type Pull struct {
	Image string
	// Pods are the pods that wait for it, as namespace/name.
	Pods []string
	// Waiting is set while it waits for other pulls, Stalled while it makes no progress.
	Waiting, Stalled bool
	// Known is set if the runtime reports progress. Then Fetched and Total are in bytes, PerSecond in bytes per second.
	Known                     bool
	Fetched, Total, PerSecond int64
	Elapsed                   time.Duration
}

// Pulls lists the running pulls, the oldest first.
func (s *Images) Pulls() []Pull { return s.pool.list() }

func (s *pool) list() []Pull {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Pull, 0, len(s.pulls))
	for _, p := range s.pulls {
		one := Pull{
			Image: p.name.full, Waiting: p.course.begin.IsZero(), Stalled: p.stalled, Known: s.progress != nil,
			Elapsed: s.now().Sub(p.since),
			Fetched: p.course.last.fetched, Total: p.course.last.total, PerSecond: p.course.rate,
		}
		for w := range p.waiters {
			if w.pod != "" {
				one.Pods = append(one.Pods, w.pod)
			}
		}
		slices.Sort(one.Pods)
		one.Pods = slices.Compact(one.Pods)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Pull) int {
		if a.Elapsed != b.Elapsed {
			return int(b.Elapsed - a.Elapsed)
		}
		return strings.Compare(a.Image, b.Image)
	})
	return all
}

// watch samples a pull that has a slot until ctx ends. It reports the progress from time to time. While there is none,
// it gives the slot to another pull.
func (s *pool) watch(ctx context.Context, p *pull) {
	s.mu.Lock()
	p.course = newCourse(s.progress != nil, s.now())
	s.mu.Unlock()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var now sample
		if s.progress != nil {
			now.fetched, now.total, now.unpacked = s.progress.PullProgress(p.name.tagged)
		}
		s.mu.Lock()
		var news string
		p.course, news = p.course.step(now, s.now())
		if p.course.stalled && !p.stalled {
			s.log.Warn("image pull makes no progress, other pulls get its slot", "image", p.name.full, "fetched",
				now.fetched,
				"total", now.total)
			s.queue.leave(p)
		}
		p.stalled = p.course.stalled
		var reports []func(string)
		for w := range p.waiters {
			if w.report != nil && news != "" {
				reports = append(reports, w.report)
			}
		}
		s.mu.Unlock()
		for _, report := range reports {
			report(news)
		}
	}
}
