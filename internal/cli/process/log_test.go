package process

import (
	"bytes"
	"log/slog"
	"testing"
)

func TestVerbosity(t *testing.T) {
	var out bytes.Buffer
	log, err := Logger(&out, "text", slog.LevelWarn)
	if err != nil {
		t.Fatal(err)
	}
	part := log.With("part", "a") // derived before the change
	set := Verbosity(log)
	for _, c := range []struct {
		v    int
		want bool
	}{{0, false}, {4, true}, {3, false}, {10, true}, {0, false}} {
		set(c.v)
		out.Reset()
		part.Debug("detail")
		if got := out.Len() > 0; got != c.want {
			t.Errorf("with -v=%d debug lines: %t, want %t", c.v, got, c.want)
		}
	}
	if _, err := Logger(&out, "xml", 0); err == nil {
		t.Error("an unknown format was taken")
	}
}
