package shape

import (
	"math"
	"testing"
)

func TestRead(t *testing.T) {
	const in, out = "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"
	for name, test := range map[string]struct {
		annotations map[string]string
		want        Limits
		fails       bool
	}{
		"none": {annotations: map[string]string{"another": "1M"}},
		"one":  {annotations: map[string]string{in: "10M"}, want: Limits{Ingress: 10_000_000}},
		"both": {annotations: map[string]string{in: "1Ki", out: "1P"},
			want: Limits{1024, 1_000_000_000_000_000}},
		"not a quantity":    {annotations: map[string]string{in: "fast"}, fails: true},
		"empty":             {annotations: map[string]string{out: ""}, fails: true},
		"too little":        {annotations: map[string]string{out: "999"}, fails: true},
		"too much":          {annotations: map[string]string{in: "1001T"}, fails: true},
		"less than nothing": {annotations: map[string]string{in: "-1M"}, fails: true},
		"slow to parse":     {annotations: map[string]string{in: "1e-9999999"}, fails: true},
	} {
		got, err := Read(test.annotations)
		if got != test.want || (err != nil) != test.fails {
			t.Errorf("%s: %+v, %v; want %+v, error %t", name, got, err, test.want, test.fails)
		}
	}
}

func TestBucket(t *testing.T) {
	for rate, want := range map[uint64]bucket{
		1_000:         {125, 128 << 10, 128<<10 + 3},
		8_000_000:     {1_000_000, 128 << 10, 128<<10 + 25_000},
		8_000_000_000: {1_000_000_000, 100_000_000, 125_000_000},
		most:          {most / 8, math.MaxUint32 / 2, math.MaxUint32},
	} {
		if got := bucketOf(rate); got != want {
			t.Errorf("%d bits per second: %+v, want %+v", rate, got, want)
		}
	}
}
