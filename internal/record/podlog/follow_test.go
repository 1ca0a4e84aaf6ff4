package podlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// log is a container's log that a runtime writes and an agent rotates.
type log struct {
	t         *testing.T
	path      string
	file      *os.File
	rotations int
}

func newLog(t *testing.T) *log {
	l := &log{t: t, path: filepath.Join(t.TempDir(), "0.log")}
	l.file = l.create()
	t.Cleanup(func() { l.file.Close() })
	return l
}

func (l *log) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *log) create() *os.File {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	l.check(err)
	return f
}

func (l *log) write(text string) {
	_, err := l.file.WriteString(text)
	l.check(err)
}

// rename is the first half of a rotation. It returns the name of the rotated file.
func (l *log) rename() string {
	rotated := l.path + "." + begin.Add(time.Duration(l.rotations)*time.Second).Format("20060102-150405")
	l.rotations++
	l.check(os.Rename(l.path, rotated))
	return rotated
}

// rotate gives the log a new file, as a runtime without buffered lines does.
func (l *log) rotate() (rotated string) {
	rotated = l.rename()
	old := l.file
	l.file = l.create()
	l.check(old.Close())
	return rotated
}

// compress compresses a rotated file, as an agent does.
func (l *log) compress(rotated string) {
	text, err := os.ReadFile(rotated)
	l.check(err)
	l.check(os.WriteFile(rotated+".gz.tmp", []byte(compressed(string(text))), 0o600))
	l.check(os.Rename(rotated+".gz.tmp", rotated+".gz"))
	l.check(os.Remove(rotated))
}

// follower reads a log while it is written.
type follower struct {
	t     *testing.T
	out   chan string   // each write of the reader, which waits until it is received
	ended chan struct{} // closed when the container has ended
	done  chan error
	got   strings.Builder
}

// Write sends p to the test.
func (f *follower) Write(p []byte) (int, error) {
	f.out <- string(p)
	return len(p), nil
}

// follow starts to read with the usual grace.
func follow(ctx context.Context, l *log, o Options) *follower {
	return followFor(ctx, l, o, writerGrace, heldGrace)
}

// followFor starts to read with another grace, and another one for files that their writer has open. With an endless
// grace, a slow machine cannot make the reader leave a file that is still written.
func followFor(ctx context.Context, l *log, o Options, grace, held time.Duration) *follower {
	f := &follower{t: l.t, out: make(chan string), ended: make(chan struct{}), done: make(chan error, 1)}
	o.Follow, o.Ended = true, f.ended
	r := newReader(l.path, o, f)
	r.grace, r.heldGrace = grace, held
	go func() {
		f.done <- r.read(ctx)
		close(f.out)
	}()
	return f
}

// until receives output until it is equal to want.
func (f *follower) until(want string) {
	f.t.Helper()
	for f.got.Len() < len(want) {
		text, ok := <-f.out
		if !ok {
			break
		}
		f.got.WriteString(text)
	}
	if diff := cmp.Diff(want, f.got.String()); diff != "" {
		f.t.Fatal(diff)
	}
}

// end receives the rest of the output, after which Read must return err.
func (f *follower) end(want string, err error) {
	f.t.Helper()
	for text := range f.out {
		f.got.WriteString(text)
	}
	if diff := cmp.Diff(want, f.got.String()); diff != "" {
		f.t.Error(diff)
	}
	if got := <-f.done; !errors.Is(got, err) {
		f.t.Errorf("error %v, want %v", got, err)
	}
}

func TestFollow(t *testing.T) {
	l := newLog(t)
	l.write(lineRange(0, 2))
	f := follow(t.Context(), l, Options{})
	f.until(outRange(0, 2))
	l.write(line(2))
	f.until(outRange(0, 3))
	text := line(3)
	l.write(text[:20]) // a line comes in two writes
	l.write(text[20:] + "2026-03-01T12:00:04Z stdout P half\n")
	f.until(outRange(0, 4))
	l.write("2026-03-01T12:00:04Z stdout P of what ends with the container\n")
	close(f.ended)
	l.check(l.file.Close())
	f.end(outRange(0, 4)+"halfof what ends with the container", nil)
}

func TestFollowTail(t *testing.T) {
	l := newLog(t)
	l.write(lineRange(0, 9))
	f := follow(t.Context(), l, Options{Tail: new(int64(1)), LimitBytes: new(int64(18))})
	f.until(outRange(8, 9))
	l.write(lineRange(9, 20))
	f.end("line 8\nline 9\nline", nil)
}

func TestFollowEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newLog(t)
	l.write(line(0))
	f := follow(ctx, l, Options{})
	f.until(outRange(0, 1))
	cancel()
	f.end(outRange(0, 1), context.Canceled)
}

func TestFollowEndedContainer(t *testing.T) {
	l := newLog(t)
	l.write(lineRange(0, 3))
	l.rotate()
	l.write(lineRange(3, 5))
	l.check(l.file.Close())
	var got bytes.Buffer
	ended := make(chan struct{})
	close(ended)
	if err := Read(t.Context(), l.path, Options{Follow: true, Ended: ended}, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(outRange(0, 5), got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestFollowRotation(t *testing.T) {
	const endless = 24 * time.Hour
	tests := []struct {
		name   string
		grace  time.Duration
		rotate func(l *log) // called after lines 0 to 9 are read; writes up to line 29
	}{
		{"at once", endless, func(l *log) {
			l.write(lineRange(10, 20))
			l.rotate()
			l.write(lineRange(20, 30))
		}},
		{"the new file is there before the old one is done", endless, func(l *log) {
			old := l.file
			l.rename()
			l.file = l.create()
			_, err := old.WriteString(lineRange(10, 15))
			l.check(err)
			l.check(old.Close())
			l.write(lineRange(15, 30))
		}},
		{"the old one is closed before the new file is there", endless, func(l *log) {
			l.rename()
			l.write(lineRange(10, 20))
			l.check(l.file.Close())
			l.file = l.create()
			l.write(lineRange(20, 30))
		}},
		{"undone, because the runtime does not reopen", endless, func(l *log) {
			rotated := l.rename()
			l.write(lineRange(10, 20))
			l.check(os.Rename(rotated, l.path))
			l.write(lineRange(20, 30))
		}},
		{"several times", writerGrace, func(l *log) {
			for i := 10; i < 30; i++ {
				l.rotate()
				l.write(line(i))
			}
		}},
		{"empty files", writerGrace, func(l *log) {
			l.rotate()
			l.rotate()
			l.rotate()
			l.write(lineRange(10, 30))
		}},
		{"empty files that are not closed", writerGrace, func(l *log) {
			for range 3 {
				old := l.file
				l.t.Cleanup(func() { old.Close() })
				l.rename()
				l.file = l.create()
			}
			l.write(lineRange(10, 30))
		}},
		{"compressed behind the reader", writerGrace, func(l *log) {
			l.write(lineRange(10, 12))
			first := l.rotate()
			l.write(lineRange(12, 15))
			second := l.rotate()
			l.compress(first)
			l.write(lineRange(15, 20))
			l.rotate()
			l.compress(second)
			l.write(lineRange(20, 30))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(t)
			l.write(lineRange(0, 10))
			f := followFor(t.Context(), l, Options{}, tt.grace, tt.grace)
			f.until(outRange(0, 10))
			tt.rotate(l)
			f.until(outRange(0, 30))
			close(f.ended)
			l.check(l.file.Close())
			f.end(outRange(0, 30), nil)
		})
	}
}

// The streams of a container switch to the new file one after the other.
func TestFollowRotationWithALateStream(t *testing.T) {
	l := newLog(t)
	l.write(line(0))
	f := followFor(t.Context(), l, Options{}, 24*time.Hour, 24*time.Hour)
	f.until(outRange(0, 1))
	old := l.file
	l.rename()
	l.file = l.create()
	l.write(line(2))
	_, err := old.WriteString(line(1))
	l.check(err)
	l.check(old.Close())
	f.until(outRange(0, 3))
	close(f.ended)
	l.check(l.file.Close())
	f.end(outRange(0, 3), nil)
}

// A runtime that gets no time from the kernel writes the end of a file when the next one has long begun.
func TestDecideAboutAHeldFile(t *testing.T) {
	l := newLog(t)
	cur, err := openFile(l.path)
	l.check(err)
	defer func() { l.check(cur.close()) }()
	now := time.Now()
	r := &reader{cur: cur, due: now.Add(-time.Minute), grace: time.Second, heldGrace: time.Hour}
	p := progress{Next: true, Filled: true}
	if v, wait := r.decide(p, now); v != linger || wait > time.Hour-time.Minute {
		t.Errorf("open for writing: %d, %v; want to linger for the rest of the hour", v, wait)
	}
	r.heldGrace = time.Minute
	if v, _ := r.decide(p, now); v != leave {
		t.Errorf("open for writing for too long: %d, want to leave", v)
	}
	l.check(l.file.Close())
	r.heldGrace = time.Hour
	if v, _ := r.decide(p, now); v != leave {
		t.Errorf("closed: %d, want to leave", v)
	}
}

// A writer that keeps rotated files open does not delay its reader.
func TestFollowWriterThatDoesNotClose(t *testing.T) {
	l := newLog(t)
	l.write(line(0))
	f := followFor(t.Context(), l, Options{}, time.Millisecond, time.Millisecond)
	f.until(outRange(0, 1))
	old := l.file
	defer old.Close()
	l.rename()
	l.file = l.create()
	l.write(line(1))
	f.until(outRange(0, 2))
	close(f.ended)
	f.end(outRange(0, 2), nil)
}

// writerFunc is called with the output before the reader looks for the next file.
type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

// A change between the end of a file and the look for the next one is not missed.
func TestFollowBetweenReadingAndLooking(t *testing.T) {
	tests := []struct {
		name    string
		happens func(l *log)
		want    string
	}{
		{"the end of the container", func(*log) {}, outRange(0, 1)},
		{"a rotation", func(l *log) {
			l.write(line(1))
			l.rotate()
			l.write(line(2))
		}, outRange(0, 3)},
		{"two rotations and a compression", func(l *log) {
			l.write(line(1))
			first := l.rotate()
			l.write(line(2))
			l.rotate()
			l.compress(first)
			l.write(line(3))
		}, outRange(0, 4)},
		{"two rotations and a compression, and lines of one moment in two files", func(l *log) {
			same := func(i int) string {
				return render(Entry{begin.Add(time.Second), Stdout, false, fmt.Appendf(nil, "line %d", i)})
			}
			l.write(same(1))
			first := l.rotate()
			l.write(same(2))
			l.rotate()
			l.compress(first)
			l.write(line(3))
		}, outRange(0, 4)},
		{"two rotations and a compression, and one moment in all files", func(l *log) {
			l.write(line(0))
			first := l.rotate()
			l.write(line(0))
			l.rotate()
			l.compress(first)
			l.write(line(0))
		}, strings.Repeat(outRange(0, 1), 4)},
		{"two rotations and a compression, and the stream of the old file is late", func(l *log) {
			l.write(line(3))
			first := l.rotate()
			l.write(line(1))
			second := l.rotate()
			l.compress(first)
			l.compress(second)
			l.write(line(2))
		}, "line 0\nline 3\nline 1\nline 2\n"},
		{"two rotations and a compression, and the clock was set back", func(l *log) {
			first := l.rotate()
			l.write(render(Entry{begin.Add(-time.Hour), Stdout, false, []byte("line 1")}))
			second := l.rotate()
			l.compress(first)
			l.compress(second)
			l.write(render(Entry{begin.Add(-time.Minute), Stdout, false, []byte("line 2")}))
		}, outRange(0, 3)},
		{"two rotations and a deletion", func(l *log) {
			l.write(line(1))
			first := l.rotate()
			l.write(line(2))
			l.rotate()
			l.check(os.Remove(first))
			l.write(line(3))
		}, outRange(0, 4)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(t)
			l.write(line(0))
			var got strings.Builder
			ended := make(chan struct{})
			w := writerFunc(func(text string) {
				if got.Len() == 0 {
					tt.happens(l)
					close(ended)
				}
				got.WriteString(text)
			})
			if err := Read(t.Context(), l.path, Options{Follow: true, Ended: ended}, w); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Lines that were deleted before they were read are lost. No other line is lost or read twice.
func TestFollowDeleted(t *testing.T) {
	l := newLog(t)
	l.write(line(0))
	f := follow(t.Context(), l, Options{})
	l.write(line(1))
	first := l.rotate()
	l.write(line(2))
	second := l.rotate()
	l.write(line(3))
	third := l.rotate()
	l.compress(first)
	l.compress(third)
	l.check(os.Remove(second))
	l.write(line(4))
	f.until("line 0\nline 1\nline 3\nline 4\n")
	close(f.ended)
	l.check(l.file.Close())
	f.end("line 0\nline 1\nline 3\nline 4\n", nil)
}

func TestFollowTruncated(t *testing.T) {
	l := newLog(t)
	l.write(lineRange(0, 5))
	f := follow(t.Context(), l, Options{})
	f.until(outRange(0, 5))
	l.check(l.file.Truncate(0))
	l.write(line(5))
	f.until(outRange(0, 6))
	close(f.ended)
	l.check(l.file.Close())
	f.end(outRange(0, 6), nil)
}

// A writer and a rotator run at full speed while two readers follow.
func TestFollowUnderLoad(t *testing.T) {
	const lines, perFile = 20_000, 700
	l := newLog(t)
	followers := []*follower{follow(t.Context(), l, Options{}), follow(t.Context(), l, Options{})}
	go func() {
		var rotated []string
		for i := range lines {
			if i%perFile == perFile-1 {
				rotated = append(rotated, l.rotate())
				if n := len(rotated); n > 1 {
					l.compress(rotated[n-2])
				}
			}
			l.write(line(i))
		}
		for _, f := range followers {
			close(f.ended)
		}
		l.check(l.file.Close())
	}()
	var all sync.WaitGroup
	for _, f := range followers {
		all.Go(func() { f.end(outRange(0, lines), nil) })
	}
	all.Wait()
}

func TestFollowLeavesNothingOpen(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	l := newLog(t)
	l.write(line(0))
	before := open()
	for i := range 3 {
		f := follow(t.Context(), l, Options{Tail: new(int64(1))})
		f.until(outRange(i, i+1))
		l.rotate()
		l.write(line(i + 1))
		f.until(outRange(i, i+2))
		close(f.ended)
		l.rotate()
		l.write(line(i + 1))
		for range f.out { // the line after the end may be read or not
		}
		l.check(<-f.done)
	}
	if after := open(); after != before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}
