package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Output describes where a command writes. Its zero value is a file or a pipe.
type Output struct {
	// Terminal says that a person reads along.
	Terminal bool
	// Color says that styles may be used.
	Color bool
	// Width and Height are the terminal's size in characters. They are 0 if the size is unknown.
	Width, Height int
}

// Of describes an output. A terminal has colors unless NO_COLOR has a value (no-color.org) or TERM is dumb.
func Of(w io.Writer) Output {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Output{}
	}
	o := Output{Terminal: true, Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, height, err := term.GetSize(int(f.Fd())); err == nil {
		o.Width, o.Height = width, height
	}
	return o
}

// Columns returns the width for a drawing: the terminal's, or 120 characters if there is none or its size is unknown.
func (o Output) Columns() int {
	if o.Width > 0 {
		return o.Width
	}
	return 120
}

// Style is a color or weight of text: the parameters of an SGR sequence (ECMA-48). The empty style leaves text as it
// is.
type Style string

// The styles. Their colors are the user's own of the terminal, which fit its background.
const (
	Head    Style = "1"  // column names and labels
	Good    Style = "32" // as wanted
	Waiting Style = "33" // not there yet, or worth a look
	Bad     Style = "31" // failed
	Faint   Style = "90" // can be skipped
)

// Origin returns the style of the n-th source of lines that are shown together. Red is left out, because it means a
// failure.
func Origin(n int) Style {
	all := []Style{"36", "35", "34", "32", "33", "96", "95", "94", "92", "93"}
	return all[n%len(all)]
}

// Paint returns text in a style if color is set.
func (s Style) Paint(color bool, text string) string {
	if !color || s == "" || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}
