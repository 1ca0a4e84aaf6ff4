package quantity

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"500m": "500m", "64Mi": "64Mi", "1e3": "1e3", "1E-3": "1E-3", "1e+0003": "1e+0003", "1E": "1E", "12E": "12E",
		"1e-999": "1e-9", "0." + strings.Repeat("0", 1<<18) + "1": "1n",
	} {
		if q, err := Parse(text); err != nil || q.String() != want {
			t.Errorf("Parse(%.20q) = %s, %v, want %s", text, q.String(), err, want)
		}
	}
	for _, text := range []string{"1e-9999999", "1E9999999", "1e+0001000", ".5e-1000", "", "1Gb"} {
		if q, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %s, want an error", text, q.String())
		}
	}
}
