package dockerlog

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/base/wake"
)

const (
	// gather is how long a tail waits for further output after a change. So a container that writes line by line costs
	// at most 100 rounds a second.
	gather = 10 * time.Millisecond
	// pause is the time between two tries to write a log.
	pause = time.Second
	// chunk is how much is written to a log at once.
	chunk = 128 << 10
)

// tail copies the output of one container.
type tail struct {
	Container
	log     *slog.Logger
	changed wake.Signal
	drains  chan chan error
	ended   chan struct{}
	target  target

	// cancel and unwatch are set when the tail starts. The Copier's lock guards them.
	cancel  context.CancelFunc
	unwatch func()

	// The rest belongs to the goroutine of run.
	source     source
	positioned bool
	failing    bool
}

func newTail(c Container, log *slog.Logger) *tail {
	return &tail{Container: c, log: log.With("container", c.ID, "log", c.Log), changed: wake.New(),
		drains: make(chan chan error), ended: make(chan struct{}), target: target{path: c.Log},
		source: source{path: c.File}}
}

// run copies until ctx ends: after each change of the files, and every period unless that is 0.
func (t *tail) run(ctx context.Context, period time.Duration) {
	defer close(t.ended)
	defer t.target.close()
	defer t.source.close()
	next := wake.NewAlarm()
	defer next.Stop()
	for {
		var reply chan error
		select {
		case <-ctx.Done():
			return
		case reply = <-t.drains:
		case <-next.C():
		case <-t.changed.C():
			select {
			case <-ctx.Done():
				return
			case reply = <-t.drains:
			case <-time.After(gather):
			}
		}
		err := t.copy(ctx)
		t.report(err)
		if reply != nil {
			reply <- err
		}
		now, again := time.Now(), period
		if err != nil {
			again = pause
		}
		if again > 0 {
			next.Set(now.Add(again), now)
		}
	}
}

// drain copies all output that is there now.
func (t *tail) drain(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case t.drains <- done:
	case <-t.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// report logs the first of several failures in a row, and their end.
func (t *tail) report(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	switch {
	case err != nil && !t.failing:
		t.log.Warn("cannot copy the output of a container to its log, retrying every second", "err", err)
	case err == nil && t.failing:
		t.log.Info("copying the output of a container to its log again")
	}
	t.failing = err != nil
}

// memory has the buffers of a tail that copies.
type memory struct{ read, text, lines []byte }

var memories = sync.Pool{New: func() any {
	return &memory{read: make([]byte, 2*block), lines: make([]byte, 0, chunk+block)}
}}

// copy copies the output up to its present end.
func (t *tail) copy(ctx context.Context) error {
	if !t.positioned {
		if err := t.seek(); err != nil {
			return err
		}
		t.positioned = true
	}
	m := memories.Get().(*memory)
	t.source.lend(m.read)
	defer func() {
		m.read = t.source.lend(nil)
		if cap(m.read) <= 2*longest {
			memories.Put(m)
		}
	}()
	for {
		ended, err := t.batch(m)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !ended {
			continue
		}
		switch o, err := t.source.follow(); {
		case err != nil:
			return err
		case o == wait:
			return nil
		case o == lost:
			t.log.Warn("Docker has removed output of a container before it was copied, the log lacks lines")
		}
	}
}

// batch copies one chunk of lines. ended reports that the source has no further lines yet.
func (t *tail) batch(m *memory) (ended bool, err error) {
	begin, damaged := t.source.at, 0
	m.lines = m.lines[:0]
	for len(m.lines) < chunk && !ended {
		line, err := t.source.next()
		if errors.Is(err, io.EOF) {
			ended = true
			break
		}
		if err != nil {
			return false, err
		}
		e, text, err := parse(m.text[:0], line)
		m.text = text
		if err != nil {
			damaged++
			continue
		}
		m.lines = appendLine(m.lines, e)
	}
	if len(m.lines) > 0 {
		if err := t.target.write(m.lines); err != nil {
			t.source.rewind(begin)
			return false, err
		}
	}
	if damaged += t.source.skipped; damaged > 0 {
		t.log.Warn("Docker's json-file has damaged lines, the log lacks them", "lines", damaged)
		t.source.skipped = 0
	}
	return ended, nil
}

// seek finds the place in Docker's files where the log ends.
func (t *tail) seek() error {
	last, err := t.target.last()
	if err != nil {
		return err
	}
	const tries = 10 // Docker may rename the files meanwhile
	for range tries {
		var gone bool
		gone, err = t.source.seek(last)
		if err == nil {
			if gone {
				t.log.Warn("Docker has removed the output that follows a container's log, the log may lack lines",
					"last", last.time)
			}
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}
