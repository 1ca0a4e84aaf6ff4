package plot

import (
	"math"
	"strings"
	"testing"
)

func TestFitSeparatesGrowthFromNoise(t *testing.T) {
	for name, c := range map[string]struct {
		x, y  []float64
		want  Line
		grows bool
	}{
		"no points":        {},
		"two points":       {x: []float64{0, 1}, y: []float64{4, 6}, want: Line{Intercept: 5}},
		"above each other": {x: []float64{1, 1, 1}, y: []float64{1, 2, 3}, want: Line{Intercept: 2}},
		"level":            {x: []float64{0, 1, 2}, y: []float64{7, 7, 7}, want: Line{Intercept: 7}},
		"on a line": {x: []float64{0, 1, 2}, y: []float64{1, 3, 5}, want: Line{Slope: 2, Intercept: 1},
			grows: true},
		"falls": {x: []float64{0, 1, 2}, y: []float64{5, 3, 1}, want: Line{Slope: -2, Intercept: 5}},
		// Residuals are 1/6, -1/3 and 1/6, so the error is sqrt(1/6 / 1 / 2).
		"within its noise": {x: []float64{0, 1, 2}, y: []float64{0, 0, 1},
			want: Line{Slope: 0.5, Intercept: -1.0 / 6, Error: math.Sqrt(1.0 / 12)}},
	} {
		got := Fit(c.x, c.y)
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if !near(got.Slope, c.want.Slope) || !near(got.Intercept, c.want.Intercept) || !near(got.Error, c.want.Error) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got.Grows() != c.grows {
			t.Errorf("%s: grows %v, want %v", name, got.Grows(), c.grows)
		}
	}
}

func TestTableIsDrawnAfterItsWarmUp(t *testing.T) {
	table := Table{Columns: []string{"pods", "mounts <n>"}, Warm: 1,
		Rows: [][]float64{{0, 90}, {10, 1}, {20, 2}, {30, 3}}}
	if got, want := table.CSV(), "pods,mounts <n>\n0,90\n10,1\n20,2\n30,3\n"; got != want {
		t.Errorf("CSV %q, want %q", got, want)
	}
	html, err := table.HTML("Soak", "seed 1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<b>mounts &lt;n&gt;</b> <small>1 to 90; slope 100 ± 0 per 1,000 pods</small>",
		`<polyline points="8.0,8.0 142.7,132.0 277.3,130.6 412.0,129.2"/>`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %s:\n%s", want, html)
		}
	}
	table.Against = []float64{0, 5}
	if html, err = table.HTML("Soak", "seed 1"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<line class="against" x1="8" y1="132" x2="412" y2="8"/>`,
		`<polyline points="8.0,57.6 142.7,131.2 277.3,130.3 412.0,129.5"/>`, // up to 150
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %s:\n%s", want, html)
		}
	}
	empty, err := (Table{Columns: []string{"pods"}}).HTML("Soak", "")
	if err != nil || strings.Contains(empty, "<svg") {
		t.Errorf("a table without rows: %v, %s", err, empty)
	}
}
