package logger

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/base/logfile"
)

// Lines are split as containerd's CRI plugin splits them.
func TestParts(t *testing.T) {
	long := strings.Repeat("x", logfile.MaxLine)
	tests := []struct {
		name, output string
		rest         bool
		want         []string // each with its tag
		left         string
	}{
		{"lines", "a\nbc\n", false, []string{"Fa", "Fbc"}, ""},
		{"an empty line", "\n", false, []string{"F"}, ""},
		{"line ends of a terminal", "a\r\n\r\nb\rc\r\n", false, []string{"Fa", "F", "Fb\rc"}, ""},
		{"no end yet", "a\nb", false, []string{"Fa"}, "b"},
		{"no end at the end", "a\nb", true, []string{"Fa", "Pb"}, ""},
		{"the longest line", long + "\n", false, []string{"F" + long}, ""},
		{"the longest line of a terminal", long + "\r\n", false, []string{"F" + long}, ""},
		{"a longer line", long + "y\n", false, []string{"P" + long, "Fy"}, ""},
		{"a long line, no end yet", long + "\r", false, nil, long + "\r"},
		{"a long line without an end", long + long + "y", true, []string{"P" + long, "P" + long, "Py"}, ""},
		{"a line of one part and its end", long + "\r", true, []string{"P" + long, "P\r"}, ""},
		{"nothing", "", true, nil, ""},
	}
	for _, tt := range tests {
		data := []byte(tt.output)
		var got []string
		for p, ok := nextPart(data, tt.rest); ok; p, ok = nextPart(data, tt.rest) {
			tag := "P"
			if p.full {
				tag = "F"
			}
			got = append(got, tag+string(p.text))
			data = data[p.size:]
		}
		if strings.Join(got, "|") != strings.Join(tt.want, "|") || string(data) != tt.left {
			t.Errorf("%s: parts %.80q, left %.80q", tt.name, got, data)
		}
	}
}

// Where a batch ends does not change the parts. A next logger depends on it.
func FuzzPartsDoNotDependOnBatches(f *testing.F) {
	f.Add([]byte("a\r\nb\n"), 2)
	f.Add(bytes.Repeat([]byte("x"), longest+1), logfile.MaxLine)
	f.Add(append(bytes.Repeat([]byte("x"), logfile.MaxLine), "\r\ny\n"...), logfile.MaxLine+1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			t.Skip()
		}
		parts := func(batches ...[]byte) (lines []byte) {
			var left []byte
			for _, b := range batches {
				left = append(left, b...)
				for p, ok := nextPart(left, false); ok; p, ok = nextPart(left, false) {
					lines = appendLine(lines, time.Time{}, "stdout", p)
					left = left[p.size:]
				}
			}
			return lines
		}
		whole, split := parts(data), parts(data[:cut], data[cut:])
		if !bytes.Equal(whole, split) {
			t.Errorf("%q and, in two batches, %q", whole, split)
		}
	})
}

func TestCountLines(t *testing.T) {
	log := "2026 stdout F a\n2026 stderr F stdout F\n2026 stdout P \nbroken\n2026 stdout F torn"
	if n := countLines([]byte(log), "stdout"); n != 2 {
		t.Errorf("%d complete lines of stdout, want 2", n)
	}
}
