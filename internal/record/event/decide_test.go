package event

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	recent, old := now.Add(-similarQuiet), now.Add(-similarQuiet-1)
	tests := []struct {
		name    string
		was     similar
		known   bool
		verdict verdict
		want    similar
	}{
		{"first of all", similar{}, false, fresh, similar{1, now}},
		{"another message", similar{3, recent}, false, fresh, similar{4, now}},
		{"same message", similar{3, recent}, true, repeat, similar{3, now}},
		{"last one of its own", similar{9, recent}, false, fresh, similar{10, now}},
		{"one too many", similar{10, recent}, false, combine, similar{10, now}},
		{"same message among too many", similar{10, recent}, true, repeat, similar{10, now}},
		{"too many, then quiet", similar{10, old}, false, fresh, similar{1, now}},
		{"same message after quiet", similar{10, old}, true, repeat, similar{0, now}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, got := decide(tt.was, tt.known, now)
			if v != tt.verdict {
				t.Errorf("verdict %d, want %d", v, tt.verdict)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
