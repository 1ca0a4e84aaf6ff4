package transfer

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/printer"
)

// line is a line on a terminal whose text changes. If the output is not a terminal, it shows nothing.
type line struct{ w io.Writer }

func newLine(w io.Writer) line {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return line{w}
	}
	return line{}
}

func (l line) show(text string) {
	if l.w != nil {
		fmt.Fprintf(l.w, "\r%s \033[K", strings.ReplaceAll(text, "\n", " "))
	}
}

func (l line) wipe() {
	if l.w != nil {
		fmt.Fprint(l.w, "\r\033[K")
	}
}

// meter counts the bytes of a transfer and shows them in a line.
type meter struct {
	line        line
	what        string
	read, total int64
	shown       time.Time
}

// period is the shortest time between two updates of the line.
const period = 200 * time.Millisecond

func (m *meter) add(n int) {
	m.read += int64(n)
	if time.Since(m.shown) <= period {
		return
	}
	m.shown = time.Now()
	of := ""
	if m.total > 0 {
		of = " of " + printer.Bytes(uint64(m.total))
	}
	m.line.show(m.what + " " + printer.Bytes(uint64(m.read)) + of)
}

type reader struct {
	io.Reader
	meter
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.add(n)
	return n, err
}

type writer struct {
	io.Writer
	meter
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.add(n)
	return n, err
}

// Text returns the progress of a pull as one line.
func Text(p api.Pull) string {
	text := "pulling " + p.Name
	switch {
	case p.Waiting:
		return text + ": waits for other pulls"
	case p.Total > 0:
		text += fmt.Sprintf(": %s of %s", printer.Bytes(uint64(p.Fetched)), printer.Bytes(uint64(p.Total)))
	case p.Fetched > 0:
		text += ": " + printer.Bytes(uint64(p.Fetched))
	}
	if p.PerSecond > 0 {
		text += fmt.Sprintf(", %s/s", printer.Bytes(uint64(p.PerSecond)))
	}
	text += fmt.Sprintf(", %ds", int(p.Elapsed))
	if p.Stalled {
		text += ", no progress"
	}
	return text
}
