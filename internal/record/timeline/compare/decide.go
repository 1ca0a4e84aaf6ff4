package compare

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/record/timeline"
)

// Comparison is the result for some starts.
type Comparison struct {
	// Starts is how many starts were compared, and Ready how many of them made a pod ready. Only those count for the
	// steps: a failed start shows how long a user waited, and not how long a step takes.
	Starts int `json:"starts"`
	Ready  int `json:"ready"`
	// Steps are in the order of a start: each step comes before its parts. The first one is the whole start.
	Steps []Step `json:"steps"`
}

// Step is a step of a start, or a part of one. Steps of several containers, volumes or images are one step: they have
// the same name without the container, volume or image.
type Step struct {
	Name string `json:"name"`
	// Level is 0 for the whole start, 1 for a step, and more for the parts of a step.
	Level int `json:"level"`
	// Starts is the number of starts that have the step.
	Starts int `json:"starts"`
	// P50 is the time that half of the starts did not exceed, and P99 the time that 99% did not. Both are nanoseconds.
	// Parts of a step that run side by side count once.
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
	// Slowest is the start with the most time in this step.
	Slowest Start `json:"slowest"`
}

// Start identifies a start.
type Start struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	At        time.Time     `json:"at"`
	Took      time.Duration `json:"took"`
}

// Starts compares starts. depth is the number of levels below the whole start; 0 is all of them.
func Starts(lines []timeline.Timeline, depth int) Comparison {
	c := Comparison{Starts: len(lines)}
	steps := map[string]*step{}
	for i := range lines {
		t := &lines[i]
		if t.State() != timeline.StateReady || len(t.Spans) == 0 {
			continue
		}
		c.Ready++
		for path, spans := range byPath(t, depth) {
			s := steps[path]
			if s == nil {
				s = &step{}
				steps[path] = s
			}
			s.add(t, spans)
		}
	}
	c.Steps = ordered(steps)
	return c
}

// separator is between the names of a path. It sorts before every printable character, so that a step comes before its
// parts.
const separator = "\x00"

// interval is a span without an open end.
type interval struct{ from, to time.Time }

// byPath returns the spans of a start by the names from the root to them. A span without an end counts until the start
// was over, and so does one that went on after it.
func byPath(t *timeline.Timeline, depth int) map[string][]interval {
	paths, levels := map[string]string{}, map[string]int{}
	all := map[string][]interval{}
	for i, s := range t.Spans {
		parent, known := paths[s.Parent]
		path, level := name(&s), 0
		if i > 0 {
			if !known { // the spans between were dropped
				parent, s.Parent = paths[t.Spans[0].ID], t.Spans[0].ID
			}
			path, level = parent+separator+path, levels[s.Parent]+1
		}
		if _, twice := paths[s.ID]; twice {
			continue // a damaged file has an id twice
		}
		paths[s.ID], levels[s.ID] = path, level
		end := s.End
		if end.IsZero() || end.After(t.End) {
			end = t.End
		}
		if (depth == 0 || level <= depth) && !end.Before(s.Start) {
			all[path] = append(all[path], interval{s.Start, end})
		}
	}
	return all
}

// name returns a common name for the spans of different starts that have the same work.
func name(s *timeline.Span) string {
	kinds := []string{"container ", "volume ", "stop ", "image ", "startup probe ", "readiness probe ",
		"liveness probe "}
	name := s.Name
	for _, kind := range kinds {
		if strings.HasPrefix(name, kind) {
			name = strings.TrimSpace(kind)
		}
	}
	if s.Kind == timeline.KindWait {
		return "wait for " + name
	}
	if s.Kind == timeline.KindImage {
		return "image"
	}
	return name
}

// step collects one step of several starts.
type step struct {
	took    []time.Duration
	began   []time.Duration // after the beginning of the whole start
	slowest Start
}

func (s *step) add(t *timeline.Timeline, spans []interval) {
	took := total(spans)
	s.took = append(s.took, took)
	s.began = append(s.began, spans[0].from.Sub(t.Start))
	if took >= s.slowest.Took {
		s.slowest = Start{t.Namespace, t.Name, t.Start, took}
	}
}

// total returns how long at least one of the spans was running.
func total(spans []interval) (sum time.Duration) {
	slices.SortFunc(spans, func(a, b interval) int { return a.from.Compare(b.from) })
	var end time.Time
	for _, s := range spans {
		if s.from.After(end) {
			end = s.from
		}
		if s.to.After(end) {
			sum += s.to.Sub(end)
			end = s.to
		}
	}
	return sum
}

// ordered returns the steps as a tree, in the usual order of their beginnings.
func ordered(steps map[string]*step) []Step {
	below := map[string][]string{}
	for path := range steps {
		parent := ""
		if i := strings.LastIndex(path, separator); i >= 0 {
			parent = path[:i]
		}
		below[parent] = append(below[parent], path)
	}
	var all []Step
	var walk func(parent string, level int)
	walk = func(parent string, level int) {
		paths := below[parent]
		slices.SortFunc(paths, func(a, b string) int {
			return cmp.Or(cmp.Compare(percentile(steps[a].began, 50), percentile(steps[b].began, 50)),
				strings.Compare(a, b))
		})
		for _, path := range paths {
			s := steps[path]
			all = append(all, Step{Name: path[strings.LastIndex(path, separator)+1:], Level: level,
				Starts: len(s.took), P50: percentile(s.took, 50), P99: percentile(s.took, 99), Slowest: s.slowest})
			walk(path, level+1)
		}
	}
	walk("", 0)
	return all
}

// percentile returns the smallest value that p percent of the values do not exceed (nearest rank).
func percentile(values []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank-1, 0)]
}
