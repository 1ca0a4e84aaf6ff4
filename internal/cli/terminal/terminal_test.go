package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestOfFileAndBufferIsNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := Of(f); got != (Output{}) {
		t.Errorf("file: %+v", got)
	}
	if got := Of(&bytes.Buffer{}); got != (Output{}) {
		t.Errorf("buffer: %+v", got)
	}
}

func TestPaint(t *testing.T) {
	for _, test := range []struct {
		style Style
		color bool
		text  string
		want  string
	}{
		{Good, true, "Running", "\x1b[32mRunning\x1b[0m"},
		{Good, false, "Running", "Running"},
		{"", true, "Running", "Running"},
		{Bad, true, "", ""},
	} {
		if got := test.style.Paint(test.color, test.text); got != test.want {
			t.Errorf("%q painted %v: %q, want %q", test.text, test.color, got, test.want)
		}
	}
}

func TestOriginDiffersForNeighboursAndNeverLooksLikeFailure(t *testing.T) {
	for n := range 30 {
		if Origin(n) == Origin(n+1) || Origin(n) == Bad {
			t.Errorf("origin %d has the style %q, and %d has %q", n, Origin(n), n+1, Origin(n+1))
		}
	}
}
