// Package monitoring checks the alert rules and the dashboard in packaging with Prometheus' own parsers:
//
//	go test -C tools/monitoring ./...
//
// It is a module of its own, so that the product does not depend on Prometheus' server.
package monitoring

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	rulesFile     = "../../packaging/prometheus/berth.rules.yaml"
	dashboardFile = "../../packaging/grafana/berth.json"
	metricsPage   = "../../docs/metrics.md"
)

// promql returns a parser of the language that every Prometheus server understands.
func promql() parser.Parser { return parser.NewParser(parser.Options{}) }

// documented holds the series of docs/metrics.md.
type documented struct {
	names    map[string]bool
	families []family
}

// family is a name that ends with a star. ends has the words in code of its row, which may end the names of its
// members.
type family struct {
	prefix string
	ends   map[string]bool
}

var (
	inCode = regexp.MustCompile("`([^`]+)`")
	name   = regexp.MustCompile(`^[a-z_][a-z0-9_]*\*?$`)
	braces = regexp.MustCompile(`\{([a-z,]+)\}`)
)

// readPage returns the series that exist according to the page. A table whose first column is "series" lists them,
// unless the text above says that they do not exist.
func readPage(t *testing.T) documented {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	d := documented{names: map[string]bool{}}
	listed, absent := false, false
	for line := range strings.Lines(string(page)) {
		switch {
		case strings.HasPrefix(line, "| series |"):
			listed = !absent
		case !strings.HasPrefix(line, "|"):
			listed = false
			if line = strings.TrimSpace(line); line != "" {
				absent = strings.Contains(line, "do not exist here")
			}
		case listed:
			cells := strings.SplitN(line, "|", 4)
			d.row(cells[1], cells[2])
		}
	}
	if len(d.names) < 80 {
		t.Fatalf("%s has only %d series", metricsPage, len(d.names))
	}
	return d
}

// row adds the series of a row. A name that begins with an underscore replaces the end of the one before.
func (d *documented) row(series, notes string) {
	ends := map[string]bool{}
	for _, m := range inCode.FindAllStringSubmatch(notes, -1) {
		ends[m[1]] = true
	}
	var last string
	for _, m := range inCode.FindAllStringSubmatch(series, -1) {
		for _, full := range expand(m[1]) {
			switch {
			case !name.MatchString(full):
				continue
			case strings.HasSuffix(full, "*"):
				d.families = append(d.families, family{strings.TrimSuffix(full, "*"), ends})
				continue
			case strings.HasPrefix(full, "_"):
				for i, r := range last {
					if r == '_' {
						d.names[last[:i]+full] = true
					}
				}
				continue
			}
			last = full
			d.names[full] = true
		}
	}
}

// expand returns the names that a name with lists in braces stands for.
func expand(text string) []string {
	at := braces.FindStringSubmatchIndex(text)
	if at == nil {
		return []string{text}
	}
	var all []string
	for choice := range strings.SplitSeq(text[at[2]:at[3]], ",") {
		all = append(all, expand(text[:at[0]]+choice+text[at[1]:])...)
	}
	return all
}

// has reports whether the page has a series, or the histogram that it is a part of.
func (d *documented) has(series string) bool {
	for _, part := range []string{"", "_bucket", "_sum", "_count"} {
		whole, ok := strings.CutSuffix(series, part)
		if !ok {
			continue
		}
		if d.names[whole] {
			return true
		}
		for _, f := range d.families {
			if end, ok := strings.CutPrefix(whole, f.prefix); ok && (len(f.ends) == 0 || f.ends[end]) {
				return true
			}
		}
	}
	return series == "up" // Prometheus makes it
}

func TestPageIsRead(t *testing.T) {
	d := readPage(t)
	for series, want := range map[string]bool{
		"berth_pods_set_aside":                            true,
		"kubelet_runtime_operations_errors_total":         true, // the end of a name
		"kubelet_runtime_operations_duration_seconds_sum": true, // a part of a histogram
		"container_pressure_memory_stalled_seconds_total": true, // braces
		"kubelet_volume_stats_used_bytes":                 true, // a family with ends
		"kubelet_volume_stats_colour":                     false,
		"kubelet_working_pods":                            false, // in the table of what does not exist
		"berth_bottles_total":                             false,
	} {
		if d.has(series) != want {
			t.Errorf("%s: documented %v, want %v", series, !want, want)
		}
	}
}

// check parses an expression and compares its series with the page.
func check(t *testing.T, d documented, where, text string) {
	t.Helper()
	expr, err := promql().ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	found := 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		found++
		series := selector.Name
		for _, m := range selector.LabelMatchers {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
				series = m.Value
			}
		}
		if !d.has(series) {
			t.Errorf("%s: %s is not in %s", where, series, metricsPage)
		}
		return nil
	})
	if found == 0 {
		t.Errorf("%s: %q reads no series", where, text)
	}
}

func TestAlertRules(t *testing.T) {
	d := readPage(t)
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.LegacyValidation, promql(),
		slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) == 0 {
		t.Fatal("no rules")
	}
	seen := map[string]bool{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			check(t, d, rule.Alert, rule.Expr)
			if seen[rule.Alert] || !strings.HasPrefix(rule.Alert, "Berth") {
				t.Errorf("%s: names are unique and begin with Berth", rule.Alert)
			}
			seen[rule.Alert] = true
			if !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) {
				t.Errorf("%s: severity %q", rule.Alert, rule.Labels["severity"])
			}
			if got := slices.Sorted(maps.Keys(rule.Annotations)); !slices.Equal(got, []string{"description", "summary"}) {
				t.Errorf("%s: annotations %v", rule.Alert, got)
			}
			if !strings.Contains(rule.Annotations["description"], "Next: ") {
				t.Errorf("%s: the description does not say what to do next", rule.Alert)
			}
		}
	}
}

// dashboard holds the fields of a Grafana dashboard that the test reads.
type dashboard struct {
	Title, UID string
	Panels     []struct {
		ID                       int
		Title, Type, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct {
			RefID, Expr string
		}
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), *([a-z_]+)\)$`)

func TestDashboard(t *testing.T) {
	d := readPage(t)
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || len(board.Panels) < 10 {
		t.Fatalf("dashboard %q (%s) has %d panels", board.Title, board.UID, len(board.Panels))
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	ids := map[int]bool{}
	for _, panel := range board.Panels {
		if ids[panel.ID] {
			t.Errorf("panel %d appears twice", panel.ID)
		}
		ids[panel.ID] = true
		if g := panel.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s is outside of the grid: %+v", panel.Title, g)
		}
		if panel.Type == "row" {
			continue
		}
		if panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("%s has no description or no query", panel.Title)
		}
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: unknown variable in %s", panel.Title, target.Expr)
			}
			check(t, d, panel.Title, expr)
		}
	}
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Errorf("variable %s: %q", v.Name, v.Definition)
			continue
		}
		check(t, d, v.Name, m[1])
	}
}
