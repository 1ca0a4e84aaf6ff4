package logrotate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheckDelay(t *testing.T) {
	const mib = 1 << 20
	tests := []struct {
		name        string
		size, limit int64
		rate        float64
		want        time.Duration
	}{
		{"unknown rate", 0, 10 * mib, 0, minDelay},
		{"slow", 0, 10 * mib, 1000, maxDelay},
		{"slow and close to the limit", 10*mib - 1000, 10 * mib, 1000, 500 * time.Millisecond},
		{"fast", 0, 10 * mib, 20 * mib, 250 * time.Millisecond},
		{"too fast", 0, 10 * mib, 500 * mib, minDelay},
		{"above the limit", 11 * mib, 10 * mib, 1, minDelay},
	}
	for _, tt := range tests {
		if got := checkDelay(tt.size, tt.limit, tt.rate); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestDecide(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 10, 0, 250e6, time.UTC)
	const (
		a, b = "0.log.20260301-120000", "0.log.20260301-120100"
		c, d = "0.log.20260301-120200", "0.log.20260301-121000"
	)
	limits := Limits{MaxSize: 100, MaxFiles: 4}
	tests := []struct {
		name    string
		files   []file
		packing bool
		limits  Limits
		want    rotation
	}{
		{name: "small", files: []file{{"0.log", 99}}, limits: limits},
		{name: "large", files: []file{{"0.log", 100}}, limits: limits, want: rotation{Rename: d}},
		{name: "no limit", files: []file{{"0.log", 1 << 40}}, limits: Limits{MaxSize: -1, MaxFiles: 5}},
		{name: "the previous file is compressed", files: []file{{"0.log", 150}, {a + ".gz", 5}, {b, 100}},
			limits: limits,
			want:   rotation{Rename: d, Compress: []string{b}}},
		{name: "the oldest file is removed", files: []file{{"0.log", 150}, {a + ".gz", 5}, {b + ".gz", 5}, {c, 100}},
			limits: limits,
			want:   rotation{Rename: d, Remove: []string{a + ".gz"}, Compress: []string{c}}},
		{name: "only one rotated file", files: []file{{"0.log", 150}, {c, 100}},
			limits: Limits{MaxSize: 100, MaxFiles: 2},
			want:   rotation{Rename: d, Remove: []string{c}}},
		{name: "fewer files than before", files: []file{{"0.log", 1}, {a + ".gz", 5}, {b, 5}, {c, 100}},
			limits: Limits{MaxSize: 100, MaxFiles: 2},
			want:   rotation{Remove: []string{a + ".gz", b}}},
		{name: "twice in a second", files: []file{{"0.log", 100}, {d, 100}}, limits: limits,
			want: rotation{Rename: d + ".250", Compress: []string{d}}},
		{name: "grew far beyond the limit", files: []file{{"0.log", 201}}, limits: limits,
			want: rotation{Rename: d, Compress: []string{d}}},
		{name: "renamed and not reopened", files: []file{{a, 100}}, limits: limits,
			want: rotation{Missing: true, Interrupted: true}},
		{name: "no files", limits: limits, want: rotation{Missing: true}},
		{name: "compressed and not removed", files: []file{{"0.log", 1}, {a, 100}, {a + ".gz", 5}, {b, 50}},
			limits: limits, want: rotation{Remove: []string{a}}},
		{name: "half compressed", files: []file{{"0.log", 1}, {a, 100}, {a + ".gz.tmp", 5}, {b, 50}}, limits: limits,
			want: rotation{Remove: []string{a + ".gz.tmp"}, Compress: []string{a}}},
		{name: "being compressed", files: []file{{"0.log", 1}, {a, 100}, {a + ".gz.tmp", 5}, {b, 50}}, packing: true,
			limits: limits,
			want:   rotation{Compress: []string{a}}},
		{name: "files of other names",
			files: []file{{"0.log", 1}, {"0.log.bak", 999}, {"0.log.old.tmp", 9}, {"10.log", 999},
				{"1.log.20260301-120000", 9}}, limits: limits},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, decide(tt.files, "0.log", tt.packing, tt.limits, now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
