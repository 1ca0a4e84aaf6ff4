package timeline

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
)

func TestTrim(t *testing.T) {
	// spans returns n numbered spans. Those in open have not ended.
	spans := func(n int, open ...int) []recorded {
		all := make([]recorded, n)
		for i := range all {
			all[i] = recorded{id: trace.SpanID{byte(i >> 8), byte(i)}, ended: true}
		}
		for _, i := range open {
			all[i].ended = false
		}
		return all
	}
	numbers := func(from, to int) []int {
		var all []int
		for i := from; i < to; i++ {
			all = append(all, i)
		}
		return all
	}
	join := func(parts ...[]int) []int {
		var all []int
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	tests := []struct {
		name  string
		spans []recorded
		want  []int
	}{
		{"the head stays", spans(headSpans), numbers(0, headSpans)},
		{"the older half of the rest goes", spans(headSpans + 10),
			join(numbers(0, headSpans), numbers(headSpans+5, headSpans+10))},
		{"one is enough", spans(headSpans + 1), numbers(0, headSpans)},
		{
			"what goes on stays", spans(headSpans+10, 0, headSpans, headSpans+1),
			join(numbers(0, headSpans+2), numbers(headSpans+6, headSpans+10)),
		},
		{"fewer than the head", spans(3), numbers(0, 3)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []int
			for _, s := range trim(tt.spans) {
				got = append(got, int(s.id[0])<<8|int(s.id[1]))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSurplus(t *testing.T) {
	tests := []struct {
		name       string
		trails     string // o: open, f: finished; oldest first
		limit      int
		kept, gone string
	}{
		{"few", "ofo", 2, "ofo", ""},
		{"too many finished", "fofff", 2, "off", "ff"},
		{"open ones stay", "oooofff", 1, "oooof", "ff"},
		{"far too many open", "oooooooooooo", 1, "oooooooooo", "oo"},
		{"far too many of both", "foooooooooooof", 1, "ooooooooof", "fooo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var trails []*trail
			for _, c := range tt.trails {
				trails = append(trails, &trail{finished: c == 'f'})
			}
			text := func(trails []*trail) string {
				s := ""
				for _, t := range trails {
					s += map[bool]string{true: "f", false: "o"}[t.finished]
				}
				return s
			}
			kept, gone := surplus(trails, tt.limit)
			if text(kept) != tt.kept || text(gone) != tt.gone {
				t.Errorf("kept %s, gone %s; want %s and %s", text(kept), text(gone), tt.kept, tt.gone)
			}
		})
	}
}
