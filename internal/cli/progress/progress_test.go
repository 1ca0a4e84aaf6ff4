package progress

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const mega = 1_000_000

func TestText(t *testing.T) {
	half := State{What: "loading web.tar", Done: 50 * mega, Total: 100 * mega, PerSecond: 10 * mega,
		Elapsed: 5 * time.Second}
	complete := State{What: "loading", Done: mega, Total: mega, PerSecond: mega, Elapsed: time.Second,
		Rest: "the agent unpacks it"}
	for _, test := range []struct {
		name  string
		state State
		width int
		want  string
	}{
		{"bar", half, 90,
			"loading web.tar [" + strings.Repeat("█", 15) + strings.Repeat("░", 15) +
				"] 50%, 50.0MB of 100.0MB, 10.0MB/s, 5s left"},
		{"short bar", half, 68, "loading web.tar [" + strings.Repeat("█", 4) + strings.Repeat("░", 4) +
			"] 50%, 50.0MB of 100.0MB, 10.0MB/s, 5s left"},
		{"no room for a bar", half, 67, "loading web.tar 50%, 50.0MB of 100.0MB, 10.0MB/s, 5s left"},
		{"no room for all", half, 30, "loading web.tar 50%, 50.0MB o…"},
		{"no total", State{What: "saving", Done: 2 * mega, PerSecond: mega, Elapsed: 2 * time.Second}, 80,
			"saving 2.0MB, 1.0MB/s, 2s"},
		{"complete", complete, 50, "loading 100%, 1.0MB of 1.0MB, the agent unpacks it, 1s"[:49] + "…"},
		{"in a queue", State{What: "pulling web:1", Waiting: true, Total: mega}, 80,
			"pulling web:1 waits for other pulls"},
		{"stalled", State{What: "pulling web:1", Silent: true, Done: mega, Elapsed: time.Minute}, 80,
			"pulling web:1 1.0MB, no progress, 1m00s"},
		{"endless", State{What: "pulling", Done: 1, Total: 1 << 50, PerSecond: 1}, 40,
			"pulling 0%, 1B of 1125.9TB, 1B/s, 0s"},
	} {
		if got := test.state.Text(test.width); got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		} else if n := utf8.RuneCountInString(got); n > test.width {
			t.Errorf("%s: %d characters, at most %d fit", test.name, n, test.width)
		}
	}
	if got, want := half.Line(), "loading web.tar: 50%, 50.0MB of 100.0MB, 10.0MB/s, 5s left"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
}

func TestTime(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 59 * time.Second: "59s", 65 * time.Second: "1m05s",
		70*time.Minute + 30*time.Second: "1h10m"} {
		if got := Time(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestRateFollowsChange(t *testing.T) {
	start := time.Unix(0, 0)
	r, done := rate{at: start}, int64(0)
	for i := range 10 {
		done += 1000
		r.measure(done, start.Add(time.Duration(i+1)*time.Second))
	}
	if r.perSecond < 999 || r.perSecond > 1001 {
		t.Errorf("%f bytes per second at a steady 1000", r.perSecond)
	}
	for i := range 10 {
		r.measure(done, start.Add(time.Duration(i+11)*time.Second))
	}
	if r.perSecond > 100 {
		t.Errorf("%f bytes per second after 10 s without any", r.perSecond)
	}
}

func TestBarShowsProgressAndClearsItsLine(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	b := newBar(&out, State{What: "copying", Total: 8}, func() time.Time { return now })
	r := b.Reader(strings.NewReader("12345678"))
	for range 4 {
		now = now.Add(period)
		if _, err := io.ReadFull(r, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
	}
	b.End()
	b.add(1)
	shown := out.String()
	for _, want := range []string{"25%, 2B of 8B, 10B/s, 1s left", "100%, 8B of 8B"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q lacks %q", shown, want)
		}
	}
	if !strings.HasSuffix(shown, "\r\x1b[K") {
		t.Errorf("the line is not cleared: %q", shown)
	}
}

func TestBarOfAFileIsSilent(t *testing.T) {
	var out bytes.Buffer
	b := New(&out, State{What: "copying"})
	if _, err := b.Writer(io.Discard).Write(make([]byte, 1<<20)); err != nil || b.Shown() {
		t.Errorf("shown: %v, %v", b.Shown(), err)
	}
	if b.End(); out.Len() > 0 {
		t.Errorf("wrote %q", out.String())
	}
}
