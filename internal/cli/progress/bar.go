package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/cli/terminal"
)

// period is the shortest time between two updates of the line.
const period = 200 * time.Millisecond

// Bar is the line of one transfer. Its methods may be called at the same time.
type Bar struct {
	w   io.Writer // nil: nothing is shown
	now func() time.Time

	mu           sync.Mutex
	state        State
	rate         rate
	start, shown time.Time
	ended        bool
}

// New returns the bar of a transfer that begins now. It is drawn on w, if w is a terminal.
func New(w io.Writer, s State) *Bar {
	if !terminal.Of(w).Terminal {
		w = nil
	}
	return newBar(w, s, time.Now)
}

func newBar(w io.Writer, s State, now func() time.Time) *Bar {
	at := now()
	return &Bar{w: w, now: now, state: s, rate: rate{at: at}, start: at}
}

// Shown reports whether a person sees the bar. If not, its caller need not find out the total.
func (b *Bar) Shown() bool { return b.w != nil }

// Total sets the number of bytes to transfer.
func (b *Bar) Total(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Total = bytes
	b.update()
}

// Reader returns a reader that counts what is read from r.
func (b *Bar) Reader(r io.Reader) io.Reader { return counted{r, nil, b} }

// Writer returns a writer that counts what is written to w.
func (b *Bar) Writer(w io.Writer) io.Writer { return counted{nil, w, b} }

// Set draws a state that the caller has measured.
func (b *Bar) Set(s State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draw(s)
}

// End clears the line. Nothing is drawn afterwards.
func (b *Bar) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.w != nil && !b.ended {
		fmt.Fprint(b.w, "\r\x1b[K") // there is no other place to report an error
	}
	b.ended = true
}

// add counts transferred bytes.
func (b *Bar) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Done += int64(n)
	complete := b.state.Total > 0 && b.state.Done >= b.state.Total
	if b.now().Sub(b.shown) >= period || complete {
		b.update()
	}
}

// update draws what has been counted.
func (b *Bar) update() {
	now := b.now()
	b.shown = now
	s := b.state
	s.PerSecond, s.Elapsed = b.rate.measure(s.Done, now), now.Sub(b.start)
	b.draw(s)
}

func (b *Bar) draw(s State) {
	if b.w == nil || b.ended {
		return
	}
	const plain = 80 // columns of a terminal that does not say how many it has
	width := terminal.Of(b.w).Width
	if width == 0 {
		width = plain
	}
	// A character in the last column makes some terminals begin a new line.
	fmt.Fprintf(b.w, "\r%s\x1b[K", strings.ReplaceAll(s.Text(width-1), "\n", " "))
}

// counted counts what passes a reader or a writer.
type counted struct {
	r io.Reader
	w io.Writer
	b *Bar
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.b.add(n)
	return n, err
}

// Write implements io.Writer.
func (c counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.b.add(n)
	return n, err
}
