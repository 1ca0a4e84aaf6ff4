package plot

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Table has samples of several quantities. The first column is the x axis of every plot.
type Table struct {
	Columns []string
	Rows    [][]float64
	// Warm is the first row after the warm-up. Lines are fitted to the rows from there on.
	Warm int
	// Against has for each column the slope of a line through the origin, which is drawn for comparison. 0, or no
	// value: there is no such line.
	Against []float64
}

// column returns the values of a column, from the given row on.
func (t Table) column(at, from int) (values []float64) {
	for _, row := range t.Rows[min(from, len(t.Rows)):] {
		values = append(values, row[at])
	}
	return values
}

// Fit returns the line of a column after the warm-up.
func (t Table) Fit(at int) Line { return Fit(t.column(0, t.Warm), t.column(at, t.Warm)) }

// CSV is the table as comma-separated values.
func (t Table) CSV() string {
	var b strings.Builder
	b.WriteString(strings.Join(t.Columns, ",") + "\n")
	for _, row := range t.Rows {
		for i, v := range row {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(number(v))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func number(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }

// The size of a plot in pixels.
const (
	width, height = 420.0, 140.0
	margin        = 8.0
)

// drawing is the plot of one column: its texts and the coordinates of its lines, in pixels.
type drawing struct {
	Name, Least, Most, Slope string
	Points                   string
	X1, Y1, X2, Y2           float64 // the fitted line
	// Against is the line for comparison, from the first x to the last one.
	Compared        bool
	FromY, ToY, ToX float64
}

func (t Table) draw(at int) drawing {
	all := t.column(at, 0)
	least, most := math.Inf(1), math.Inf(-1)
	for _, v := range all {
		least, most = min(least, v), max(most, v)
	}
	line := t.Fit(at)
	xs := t.column(0, 0)
	first, last := xs[0], xs[len(xs)-1]
	compared := 0.0
	if at < len(t.Against) {
		compared = t.Against[at]
	}
	if compared != 0 {
		least, most = min(least, compared*first), max(most, compared*last)
	}
	d := drawing{Name: t.Columns[at], Least: number(least), Most: number(most),
		Slope: fmt.Sprintf("%.3g ± %.2g per 1,000 %s", 1000*line.Slope, 1000*line.Error, t.Columns[0])}
	px := func(x float64) float64 { return margin + (x-first)/max(last-first, 1e-9)*(width-2*margin) }
	py := func(y float64) float64 { return height - margin - (y-least)/max(most-least, 1e-9)*(height-2*margin) }
	var points strings.Builder
	for i, v := range all {
		fmt.Fprintf(&points, "%.1f,%.1f ", px(xs[i]), py(v))
	}
	d.Points = strings.TrimSpace(points.String())
	from, to := xs[min(t.Warm, len(xs)-1)], last
	d.X1, d.Y1, d.X2, d.Y2 = px(from), py(line.At(from)), px(to), py(line.At(to))
	d.Compared, d.FromY, d.ToY, d.ToX = compared != 0, py(compared*first), py(compared*last), px(last)
	return d
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title>
<style>
body { font: 14px sans-serif; margin: 2em; color: #222 }
figure { display: inline-block; margin: 0 1.5em 1.5em 0 }
svg { background: #f6f6f4 }
polyline { fill: none; stroke: #2a6f97; stroke-width: 1.2 }
line { stroke: #c1440e; stroke-width: 1.2; stroke-dasharray: 5 3 }
line.against { stroke: #3a7d44; stroke-dasharray: none }
small { color: #666 }
</style></head><body>
<h1>{{.Title}}</h1>
<p>{{.Note}}</p>
{{range .Drawings}}<figure>
<figcaption><b>{{.Name}}</b> <small>{{.Least}} to {{.Most}}; slope {{.Slope}}</small></figcaption>
<svg width="420" height="140" role="img" aria-label="{{.Name}}"><polyline points="{{.Points}}"/>` +
	`<line x1="{{.X1}}" y1="{{.Y1}}" x2="{{.X2}}" y2="{{.Y2}}"/>` +
	`{{if .Compared}}<line class="against" x1="8" y1="{{.FromY}}" x2="{{.ToX}}" y2="{{.ToY}}"/>{{end}}</svg></figure>
{{end}}</body></html>
`))

// HTML draws each column after the first, with the line that fits its rows after the warm-up.
func (t Table) HTML(title, note string) (string, error) {
	var all []drawing
	if len(t.Rows) > 0 {
		for at := 1; at < len(t.Columns); at++ {
			all = append(all, t.draw(at))
		}
	}
	var b strings.Builder
	err := page.Execute(&b, struct {
		Title, Note string
		Drawings    []drawing
	}{title, note, all})
	return b.String(), err
}
