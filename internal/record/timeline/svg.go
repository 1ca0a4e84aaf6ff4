package timeline

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The measures of a picture, in pixels.
const (
	svgWidth  = 1000
	svgMargin = 12
	svgLine   = 18 // height of a row
	svgGlyph  = 7  // width of a character, at most; the font has a fixed width
	svgTime   = 8 * svgGlyph
	svgRadius = 2
)

// svgBad is the class of what has failed.
const svgBad = "bad"

// svgStyle has a color for each kind of span, on light and dark backgrounds. Nothing is loaded from elsewhere.
const svgStyle = `text { font: 11px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2328;
  white-space: pre }
.ground { fill: #ffffff } .rule { stroke: #d0d7de } .title { font-weight: bold } .faint { fill: #656d76 }
.step { fill: #2da44e } .cri { fill: #0891b2 } .image { fill: #a855c7 } .hook { fill: #3b6fd8 }
.wait { fill: #b6bec7 } .bad { fill: #cf222e } .open { opacity: .55 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .ground { fill: #0d1117 } .rule { stroke: #30363d } .faint { fill: #8d96a0 }
  .step { fill: #3fb950 } .cri { fill: #39c5cf } .image { fill: #d2a8ff } .hook { fill: #79c0ff }
  .wait { fill: #484f58 } .bad { fill: #ff7b72 }
}`

// SVG draws a timeline as a picture: the same rows as Draw. A browser shows the exact times of a bar under the pointer.
// depth is the number of levels drawn below the root; 0 draws all. It returns the errors of w.
func SVG(w io.Writer, t Timeline, depth int) error {
	p := picture{out: bufio.NewWriter(w), from: t.Start, to: end(&t)}
	rows := rows(&t, depth)
	height := 2*svgMargin + 3*svgLine
	for _, r := range rows {
		height += svgLine
		p.name = max(p.name, min(utf8.RuneCountInString(r.text()), 48)*svgGlyph)
		if r.err != "" {
			height += svgLine
		}
	}
	fmt.Fprintf(p.out, `<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" role="img"`)
	fmt.Fprintf(p.out, " width=\"%d\" height=\"%d\" viewBox=\"0 0 %[1]d %[2]d\">\n", svgWidth, height)
	fmt.Fprintf(p.out, "<title>%s</title>\n<style>%s</style>\n", escape(headline(&t)), svgStyle)
	fmt.Fprintf(p.out, "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", svgWidth, height)
	p.y = svgMargin + svgLine/2
	p.text(svgMargin, "title", headline(&t))
	p.y += svgLine
	p.text(svgMargin, "faint", fmt.Sprintf("%s, %s, uid %s", printable(t.What),
		t.Start.UTC().Format("2006-01-02 15:04:05.000 MST"), printable(string(t.UID))))
	p.y += svgLine
	p.axis()
	for _, r := range rows {
		p.row(r)
	}
	fmt.Fprintln(p.out, "</svg>")
	return p.out.Flush()
}

// picture draws rows from top to bottom.
type picture struct {
	out      *bufio.Writer
	from, to time.Time
	name     int // width of the names
	y        int // base line of the row that is drawn
}

// bars returns where the bars begin, and how wide their column is.
func (p *picture) bars() (x, width int) {
	x = svgMargin + p.name + 2*(svgTime+svgGlyph) + svgGlyph
	return x, svgWidth - svgMargin - x
}

func (p *picture) text(x int, class, text string) {
	fmt.Fprintf(p.out, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, p.y, class, escape(text))
}

// axis draws the ends of the scale, and a line at each quarter.
func (p *picture) axis() {
	x, width := p.bars()
	p.text(svgMargin+p.name+svgGlyph, "faint", fmt.Sprintf("%8s", "start"))
	p.text(svgMargin+p.name+svgTime+2*svgGlyph, "faint", fmt.Sprintf("%8s", "took"))
	p.text(x, "faint", "0")
	total := short(p.to.Sub(p.from))
	p.text(x+width-len(total)*svgGlyph, "faint", total)
	const quarters = 4
	for i := range quarters + 1 {
		at := x + width*i/quarters
		fmt.Fprintf(p.out, "<line class=\"rule\" x1=\"%d\" x2=\"%[1]d\" y1=\"%d\" y2=\"%d\"/>\n", at, p.y+svgLine/4,
			p.y+svgLine/2)
	}
	p.y += svgLine
}

func (p *picture) row(r row) {
	s := r.span
	stop, open := s.End, ""
	if stop.IsZero() {
		stop, open = p.to, "+"
	}
	took := short(stop.Sub(s.Start)) + open
	class := svgClass(s)
	name := ""
	if class == svgBad {
		name = svgBad
	}
	p.text(svgMargin, name, clip(r.text(), p.name/svgGlyph))
	p.text(svgMargin+p.name+svgGlyph, "faint", fmt.Sprintf("%*s", timeWidth, short(s.Start.Sub(p.from))))
	p.text(svgMargin+p.name+svgTime+2*svgGlyph, "", fmt.Sprintf("%*s", timeWidth, took))
	x, width := p.bars()
	from, to := p.place(s.Start, width), p.place(stop, width)
	if open != "" {
		class += " open"
	}
	fmt.Fprintf(p.out, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="%d">`, class, float64(x)+from,
		p.y-svgLine/2, max(to-from, 1), svgLine*2/3, svgRadius)
	fmt.Fprintf(p.out, "<title>%s</title></rect>\n",
		escape(strings.TrimSpace(r.text())+": "+took+" from "+short(s.Start.Sub(p.from))))
	p.y += svgLine
	if r.err != "" {
		indent := utf8.RuneCountInString(r.indent()) + 2
		p.text(svgMargin+indent*svgGlyph, svgBad, clip(printable(r.err), (svgWidth-2*svgMargin)/svgGlyph-indent))
		p.y += svgLine
	}
}

// place returns how far right of the first bar a time is. Times outside of the picture are at its ends.
func (p *picture) place(at time.Time, width int) float64 {
	total := p.to.Sub(p.from)
	if total <= 0 {
		return 0
	}
	return float64(min(max(at.Sub(p.from), 0), total)) / float64(total) * float64(width)
}

// svgClass returns the class of a span's bar in svgStyle.
func svgClass(s *Span) string {
	if s.Err != "" || s.Reason != "" {
		return svgBad
	}
	if slices.Contains([]Kind{KindCRI, KindImage, KindHook, KindWait}, s.Kind) {
		return string(s.Kind)
	}
	return string(KindStep)
}

// escape makes a text safe as content of an element.
func escape(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a strings.Builder takes everything
	return out.String()
}
