package ui

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/record/timeline"
)

// stepTime has the durations of a step in all starts with this step. Times are in milliseconds.
type stepTime struct {
	Name  string        `json:"name"`
	Kind  timeline.Kind `json:"kind"`
	Count int           `json:"count"`
	P50   float64       `json:"p50"`
	P99   float64       `json:"p99"`
}

// stepTimes returns the times of each step: the whole start first, and then the slowest step.
func stepTimes(starts []timeline.Timeline) []stepTime {
	type step struct {
		name string
		kind timeline.Kind
	}
	took := map[step][]time.Duration{}
	for _, line := range starts {
		for i, s := range line.Spans {
			name := stepName(s)
			if i == 0 {
				name = line.What
			}
			if !s.End.IsZero() {
				key := step{name, s.Kind}
				took[key] = append(took[key], s.End.Sub(s.Start))
			}
		}
	}
	all := []stepTime{}
	for key, times := range took {
		slices.Sort(times)
		all = append(all, stepTime{key.name, key.kind, len(times), milliseconds(quantile(times, 0.5)),
			milliseconds(quantile(times, 0.99))})
	}
	whole := func(s stepTime) int {
		if len(starts) > 0 && s.Name == starts[0].What {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b stepTime) int {
		return cmp.Or(cmp.Compare(whole(a), whole(b)), cmp.Compare(b.P99, a.P99), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// stepName returns the name of a span without the name of its container, volume or image.
func stepName(s timeline.Span) string {
	if s.Kind == timeline.KindImage {
		return "pull"
	}
	for _, what := range named {
		if strings.HasPrefix(s.Name, what+" ") {
			return what
		}
	}
	return s.Name
}

// named are the first words of spans that end with the name of a part of the pod.
var named = []string{"container", "volume", "image", "stop", "startup probe", "readiness probe", "liveness probe"}

// quantile returns the value below which a share of sorted times lies, by the nearest rank.
func quantile(sorted []time.Duration, share float64) time.Duration {
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

func milliseconds(d time.Duration) float64 { return math.Round(float64(d.Microseconds())) / 1000 }
