package image

import (
	"context"
	"slices"
	"strings"
	"time"
)

// progress tells how far pulls of an image are, in bytes; total 0: not known yet.
type progress interface {
	PullProgress(image string) (fetched, total, unpacked int64)
}

// tick is how often a pull is looked at.
const tick = time.Second

// Pull is how a pull under way is going.
type Pull struct {
	Image string
	// Pods wait for it: namespace/name.
	Pods []string
	// Waiting says that it waits for other pulls, Stalled that it makes no
	// progress.
	Waiting, Stalled bool
	// Known says that the runtime tells what follows; bytes.
	Known                     bool
	Fetched, Total, PerSecond int64
	Elapsed                   time.Duration
}

// Pulls lists the pulls under way, the oldest first.
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
			if w.who != "" {
				one.Pods = append(one.Pods, w.who)
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

// watch follows a pull that has a slot until ctx ends: it tells how it goes now
// and then, and gives its slot to others while it does not.
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
			s.log.Warn("a pull makes no progress, others go first", "image", p.name.full, "fetched", now.fetched,
				"total", now.total)
			s.queue.leave(p)
		}
		p.stalled = p.course.stalled
		var tell []func(string)
		for w := range p.waiters {
			if w.tell != nil && news != "" {
				tell = append(tell, w.tell)
			}
		}
		s.mu.Unlock()
		for _, t := range tell {
			t(news)
		}
	}
}
