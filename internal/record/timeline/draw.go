package timeline

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// DrawOptions configures Draw.
type DrawOptions struct {
	// Color shows kinds and failures in ANSI colors.
	Color bool
	// Depth is the number of levels drawn below the root; 0 draws all. A row with omitted children shows their number.
	Depth int
}

// shortWait is the shortest wait that gets a row. A shorter one found what it waited for already there.
const shortWait = 500 * time.Microsecond

// The columns besides name and bar.
const (
	timeWidth = 8                   // width of a start and of a duration
	gaps      = 2 + 2*timeWidth + 2 // mark, times and the spaces between them
	minBar    = 10
	minName   = 12
	maxIndent = 2 * 10 // deeper levels are drawn like the tenth
)

// row is a span in the drawing.
type row struct {
	span   *Span
	level  int
	label  string
	hidden int    // omitted spans below it
	err    string // shown below the row
}

// Draw writes a timeline as a waterfall of width columns (at least 40): one row per span with its start, its duration
// and a bar to scale. It returns the errors of w.
func Draw(w io.Writer, t Timeline, width int, o DrawOptions) error {
	width = max(width, 40)
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, paintState(&t, clip(headline(&t), width), o.Color))
	fmt.Fprintf(out, "%s\n\n", clip(fmt.Sprintf("%s, %s, uid %s", printable(t.What),
		t.Start.UTC().Format("2006-01-02 15:04:05.000 MST"), printable(string(t.UID))), width))

	c := canvas{out: out, color: o.Color, width: width, from: t.Start, to: end(&t)}
	rows := rows(&t, o.Depth)
	c.layout(rows)
	c.axis()
	for _, r := range rows {
		c.row(r)
	}
	if t.Dropped > 0 {
		fmt.Fprintf(out, "%d earlier spans are omitted\n", t.Dropped)
	}
	return out.Flush()
}

// paintState colors the part of a headline behind the pod's name.
func paintState(t *Timeline, head string, color bool) string {
	name, state, ok := strings.Cut(head, ": ")
	if !color || !ok {
		return head
	}
	code := "33" // yellow
	switch t.State() {
	case StateReady:
		code = "32" // green
	case StateFailed, StateInterrupted:
		code = "31" // red
	case StateOpen:
	}
	return name + ": \x1b[" + code + "m" + state + "\x1b[0m"
}

// headline returns the state of the pod.
func headline(t *Timeline) string {
	took := short(end(t).Sub(t.Start))
	state := ""
	switch t.State() {
	case StateReady:
		state = "ready after " + took
	case StateFailed:
		state = fmt.Sprintf("failed after %s: %s", took, printable(cmp.Or(t.Reason, t.Err)))
	case StateOpen:
		state = "not ready yet, " + took + " so far"
	case StateInterrupted:
		state = "interrupted after " + took + " by the agent's end"
	}
	return fmt.Sprintf("Pod %s/%s: %s", printable(t.Namespace), printable(t.Name), state)
}

// end returns the time at the right edge of the drawing.
func end(t *Timeline) time.Time {
	if t.End.IsZero() {
		return t.Read
	}
	return t.End
}

// rows returns the spans in the order of the tree.
func rows(t *Timeline, depth int) []row {
	if len(t.Spans) == 0 {
		return nil
	}
	root := &t.Spans[0]
	known := map[string]*Span{}
	for i := range t.Spans {
		if s := &t.Spans[i]; known[s.ID] == nil {
			known[s.ID] = s
		}
	}
	children := map[string][]*Span{}
	for i := range t.Spans[1:] {
		s := &t.Spans[1+i]
		if known[s.ID] != s {
			continue // a damaged file has an id twice
		}
		if s.Kind == KindWait && !s.End.IsZero() && s.End.Sub(s.Start) < shortWait {
			continue
		}
		parent := s.Parent
		if known[parent] == nil {
			parent = root.ID // the spans between were dropped
		}
		children[parent] = append(children[parent], s)
	}
	var all []row
	var walk func(s *Span, level int)
	walk = func(s *Span, level int) {
		below := children[s.ID]
		slices.SortStableFunc(below, func(a, b *Span) int {
			return cmp.Compare(a.Start.UnixNano(), b.Start.UnixNano())
		})
		r := row{span: s, level: level, label: label(s), err: ownError(s, below)}
		if depth > 0 && level >= depth {
			r.hidden = count(below, children)
			r.err = problem(s)
			all = append(all, r)
			return
		}
		all = append(all, r)
		for _, child := range below {
			walk(child, level+1)
		}
	}
	walk(root, 0)
	return all
}

// count returns the number of spans in the trees below.
func count(below []*Span, children map[string][]*Span) int {
	n := len(below)
	for _, s := range below {
		n += count(children[s.ID], children)
	}
	return n
}

func label(s *Span) string {
	name := printable(s.Name)
	if s.Kind == KindWait {
		return "waited for " + name
	}
	return name
}

// ownError returns the part of a span's error that its children do not show: an error is wrapped on its way up, and it
// is read where it began.
func ownError(s *Span, below []*Span) string {
	for _, child := range below {
		if child.Err == "" || !strings.Contains(s.Err, child.Err) {
			continue
		}
		if child.Reason == "" {
			return s.Reason
		}
		return ""
	}
	return problem(s)
}

func problem(s *Span) string {
	if s.Reason == "" || s.Err == "" {
		return s.Reason + s.Err
	}
	return s.Reason + ": " + s.Err
}

// canvas draws rows.
type canvas struct {
	out      *bufio.Writer
	color    bool
	width    int
	name     int // width of the names
	bar      int // width of the bars, 0 for none
	from, to time.Time
}

// layout divides the width between names and bars.
func (c *canvas) layout(rows []row) {
	longest := minName
	for _, r := range rows {
		longest = max(longest, utf8.RuneCountInString(r.text()))
	}
	c.name = min(longest, max(minName, c.width*9/20))
	c.bar = c.width - c.name - gaps - 1
	if c.bar < minBar {
		c.name, c.bar = min(longest, c.width-gaps), 0
	}
}

func (r row) indent() string { return strings.Repeat(" ", min(2*r.level, maxIndent)) }

// text returns the text of the row's name column.
func (r row) text() string {
	text := r.indent() + r.label
	if r.hidden > 0 {
		text += fmt.Sprintf(" (+%d)", r.hidden)
	}
	return text
}

// axis draws the ends of the scale above the bars.
func (c *canvas) axis() {
	total := short(c.to.Sub(c.from))
	head := fmt.Sprintf("%s   %*s %*s", pad("", c.name), timeWidth, "start", timeWidth, "took")
	if c.bar > 0 {
		head += " 0" + fmt.Sprintf("%*s", c.bar-1, total)
	}
	fmt.Fprintln(c.out, head)
}

func (c *canvas) row(r row) {
	s := r.span
	mark := " "
	if s.Err != "" || s.Reason != "" {
		mark = "✗"
	}
	stop, open := s.End, ""
	if stop.IsZero() {
		stop, open = c.to, "+"
	}
	took := short(stop.Sub(s.Start)) + open
	text := fmt.Sprintf("%s %s %*s %*s", pad(clip(r.text(), c.name), c.name), c.paint(s, mark),
		timeWidth, short(s.Start.Sub(c.from)), timeWidth, took)
	if c.bar > 0 {
		indent, blocks := bar(s.Start.Sub(c.from), stop.Sub(c.from), c.to.Sub(c.from), c.bar, filling(s))
		text += " " + strings.Repeat(" ", indent) + c.paint(s, blocks)
	}
	fmt.Fprintln(c.out, strings.TrimRight(text, " "))
	if r.err != "" {
		indent := r.indent() + "  "
		for _, line := range wrap(printable(r.err), max(c.width-len(indent), minName)) {
			fmt.Fprintln(c.out, indent+c.paint(s, line))
		}
	}
}

// paint colors a text by the kind and state of the span.
func (c *canvas) paint(s *Span, text string) string {
	if !c.color || strings.TrimSpace(text) == "" {
		return text
	}
	code := "32" // green
	switch {
	case s.Err != "" || s.Reason != "":
		code = "31" // red
	case s.Kind == KindWait:
		code = "90" // gray
	case s.Kind == KindCRI:
		code = "36" // cyan
	case s.Kind == KindImage:
		code = "35" // magenta
	case s.Kind == KindHook:
		code = "34" // blue
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// filling returns the character of a full cell: solid for work, light for waits, medium for spans that have not ended.
func filling(s *Span) string {
	switch {
	case s.Kind == KindWait:
		return "░"
	case s.End.IsZero():
		return "▒"
	}
	return "█"
}

// bar returns a bar of width cells for the time from..to of total: the number of empty cells before it, and at least
// one block. A solid bar ends with a precision of an eighth of a cell. A bar that continues beyond total ends with an
// arrow.
func bar(from, to, total time.Duration, width int, fill string) (indent int, blocks string) {
	eighths := func(d time.Duration) int {
		if total <= 0 {
			return 0
		}
		return int(float64(min(max(d, 0), total)) / float64(total) * float64(8*width))
	}
	indent = min(eighths(from)/8, width-1)
	length := max(eighths(to)-8*indent, 1)
	if fill == "█" {
		blocks = strings.Repeat(fill, length/8)
		if rest := length % 8; rest > 0 {
			blocks += string([]rune("▏▎▍▌▋▊▉")[rest-1])
		}
	} else {
		blocks = strings.Repeat(fill, (length+7)/8)
	}
	if to > total {
		blocks = strings.Repeat(fill, width-indent-1) + "▶"
	}
	return indent, blocks
}

// short formats a duration in fewer than timeWidth characters.
func short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d < 0:
		return "0 ms"
	case ms < 1:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	days := int(d.Hours()) / 24
	if days < 1000 {
		return fmt.Sprintf("%dd%02dh", days, int(d.Hours())%24)
	}
	return fmt.Sprintf("%dd", days)
}

// printable makes a text safe for a terminal and for a single line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// wrap breaks a text into lines of up to width columns, between words where possible.
func wrap(text string, width int) []string {
	var lines []string
	line := []rune{}
	for word := range strings.FieldsSeq(text) {
		next := []rune(word)
		if len(line) > 0 && len(line)+1+len(next) > width {
			lines = append(lines, string(line))
			line = line[:0]
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, next...); len(line) > width; line = line[width:] {
			lines = append(lines, string(line[:width]))
		}
	}
	return append(lines, string(line))
}

// clip cuts a text to width columns.
func clip(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// pad extends a text to width columns.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}
