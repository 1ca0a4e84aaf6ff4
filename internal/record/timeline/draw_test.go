package timeline

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/golden"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// span returns a span with times in milliseconds after begin. A negative to means that it has not ended.
func span(id, parent, name string, kind Kind, from, to float64) Span {
	at := func(ms float64) time.Time { return begin.Add(time.Duration(ms * float64(time.Millisecond))) }
	s := Span{ID: id, Parent: parent, Name: name, Kind: kind, Start: at(from)}
	if to >= 0 {
		s.End = at(to)
	}
	return s
}

func failed(s Span, reason, err string) Span {
	s.Reason, s.Err = reason, err
	return s
}

func readyPod() Timeline {
	return Timeline{
		Namespace: "default", Name: "web", UID: "3c1ab7de", What: "pod start",
		Start: begin, End: begin.Add(128 * time.Millisecond), Read: begin.Add(time.Hour),
		Spans: []Span{
			span("1", "", "pod start", KindStep, 0, 128),
			span("2", "1", "admission", KindStep, 0.1, 0.42),
			span("3", "1", "poddir", KindStep, 0.5, 1.1),
			span("4", "1", "cgroup", KindStep, 0.5, 3.2),
			span("5", "1", "image registry.example/team/with/a/long/path/app:v1.2.3", KindImage, 0.6, 22),
			span("6", "5", "ImageStatus", KindCRI, 0.7, 2.5),
			span("7", "1", "sandbox", KindStep, 3.3, 72),
			span("8", "7", "RunPodSandbox", KindCRI, 3.5, 71),
			span("9", "8", "network", KindStep, 20, 55),
			span("a", "1", "container app", KindStep, 3.3, 110),
			span("b", "a", "sandbox", KindWait, 3.4, 72),
			span("c", "a", "image app", KindWait, 72.1, 72.2),
			span("d", "a", "CreateContainer", KindCRI, 72.5, 85),
			span("e", "a", "StartContainer", KindCRI, 85, 104),
			span("f", "a", "postStart", KindHook, 104.2, 110),
			span("10", "1", "probe", KindStep, 110, 240),
		},
	}
}

func brokenPod() Timeline {
	pull := `pull "no.such/image:1": not found` +
		"\x1b[31m and much more text that does not fit into any line of a terminal at all"
	return Timeline{
		Namespace: "default", Name: "broken", UID: "77", What: "pod start",
		Start: begin, End: begin.Add(95 * time.Second), Read: begin.Add(time.Hour),
		Reason: "ErrImagePull", Err: pull, Dropped: 12,
		Spans: []Span{
			failed(span("1", "", "pod start", KindStep, 0, 95000), "ErrImagePull", pull),
			failed(span("2", "1", "image app", KindImage, 10, 4000), "ErrImagePull", pull),
			failed(span("3", "2", "PullImage", KindCRI, 11, 3999), "", pull),
			failed(span("4", "gone", "StopPodSandbox", KindCRI, 80000, 95000), "", "context deadline exceeded"),
		},
	}
}

func openPod(interrupted bool) Timeline {
	return Timeline{
		Namespace: "default", Name: "slow", UID: "78", What: "pod start", Interrupted: interrupted,
		Start: begin, Read: begin.Add(3*time.Hour + 5*time.Minute),
		Spans: []Span{
			span("1", "", "pod start", KindStep, 0, -1),
			span("2", "1", "volume", KindStep, 10, 400),
			span("3", "1", "startup probe of app", KindWait, 500, -1),
			span("4", "1", "pull", KindImage, 600_000, -1),
		},
	}
}

func TestDraw(t *testing.T) {
	tests := []struct {
		file  string
		line  Timeline
		width int
		o     DrawOptions
	}{
		{"ready-80", readyPod(), 80, DrawOptions{}},
		{"ready-120", readyPod(), 120, DrawOptions{}},
		{"ready-120-depth-1", readyPod(), 120, DrawOptions{Depth: 1}},
		{"ready-40", readyPod(), 40, DrawOptions{}},
		{"ready-color", readyPod(), 80, DrawOptions{Color: true}},
		{"failed-80", brokenPod(), 80, DrawOptions{}},
		{"failed-80-depth-1", brokenPod(), 80, DrawOptions{Depth: 1}},
		{"open-80", openPod(false), 80, DrawOptions{}},
		{"interrupted-80", openPod(true), 80, DrawOptions{}},
		{"empty", Timeline{Namespace: "ns", Name: "pod", UID: "1", What: "pod start", Start: begin, Read: begin}, 80,
			DrawOptions{}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			var got bytes.Buffer
			if err := Draw(&got, tt.line, tt.width, tt.o); err != nil {
				t.Fatal(err)
			}
			golden.Text(t, tt.file+".txt", got.String())
		})
	}
}

// FuzzDraw checks that no timeline, however damaged its file, breaks the terminal.
func FuzzDraw(f *testing.F) {
	for _, line := range []Timeline{readyPod(), brokenPod(), openPod(true)} {
		text, err := json.Marshal(line)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, 80)
	}
	f.Add([]byte(`{"spans":[{"id":"1"},{"id":"1","parent":"1"},{"id":"2","parent":"3"},{"id":"3","parent":"2"}]}`), 0)
	f.Fuzz(func(t *testing.T, text []byte, width int) {
		width = min(width, 500)
		var line Timeline
		if json.Unmarshal(text, &line) != nil {
			return
		}
		var got strings.Builder
		if err := Draw(&got, line, width, DrawOptions{}); err != nil {
			t.Fatal(err)
		}
		for row := range strings.Lines(got.String()) {
			row = strings.TrimSuffix(row, "\n")
			if n := utf8.RuneCountInString(row); n > max(width, 40) || strings.ContainsFunc(row, unicode.IsControl) {
				t.Fatalf("a row of %d columns, for %d: %q", n, width, row)
			}
		}
	})
}

func TestBar(t *testing.T) {
	tests := []struct {
		name            string
		from, to, total time.Duration
		fill            string
		indent          int
		blocks          string
	}{
		{"all", 0, 80, 80, "█", 0, "██████████"},
		{"half", 0, 40, 80, "█", 0, "█████"},
		{"an eighth", 0, 1, 80, "█", 0, "▏"},
		{"nothing is one eighth", 40, 40, 80, "█", 5, "▏"},
		{"at the end", 80, 80, 80, "█", 9, "█"},
		{"inside a cell", 13, 23, 80, "█", 1, "█▉"},
		{"a wait", 13, 17, 80, "░", 1, "░░"},
		{"beyond the end", 72, 200, 80, "█", 9, "▶"},
		{"begins beyond the end", 90, 200, 80, "█", 9, "▶"},
		{"no time at all", 0, 0, 0, "█", 0, "▏"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			indent, blocks := bar(tt.from, tt.to, tt.total, 10, tt.fill)
			if indent != tt.indent || blocks != tt.blocks {
				t.Errorf("bar = %d %q, want %d %q", indent, blocks, tt.indent, tt.blocks)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{"one two three", []string{"one two", "three"}},
		{"  spaces   between ", []string{"spaces", "between"}},
		{"abcdefghijklmnop", []string{"abcdefgh", "ijklmnop"}},
		{"a abcdefghij b", []string{"a", "abcdefgh", "ij b"}},
		{"ääääääää ö", []string{"ääääääää", "ö"}},
		{"", []string{""}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, wrap(tt.text, 8)); diff != "" {
			t.Errorf("wrap(%q): %s", tt.text, diff)
		}
	}
}

func TestShort(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{-1, "0 ms"},
		{0, "0.00 ms"},
		{420 * time.Microsecond, "0.42 ms"},
		{4200 * time.Microsecond, "4.2 ms"},
		{128 * time.Millisecond, "128 ms"},
		{1280 * time.Millisecond, "1.3 s"},
		{99 * time.Second, "99.0 s"},
		{125 * time.Second, "2m05s"},
		{26*time.Hour + 5*time.Minute, "26h05m"},
		{13104 * time.Hour, "546d00h"},
		{math.MaxInt64, "106751d"},
	}
	for _, tt := range tests {
		if got := short(tt.d); got != tt.want {
			t.Errorf("short(%s) = %q, want %q", tt.d, got, tt.want)
		}
	}
}

func TestSVG(t *testing.T) {
	for name, line := range map[string]Timeline{"ready.svg": readyPod(), "failed.svg": brokenPod()} {
		var out bytes.Buffer
		if err := SVG(&out, line, 0); err != nil {
			t.Fatal(err)
		}
		golden.Text(t, name, out.String())
	}
}

// Names and messages come from pods and registries: none of them may become an element of the picture.
func TestSVGEscapesAndIsWellFormed(t *testing.T) {
	line := readyPod()
	line.Name = `</text><script>alert(1)</script>`
	line.Spans[1] = failed(span("2", "1", `"><img src=x>`, KindStep, 0.1, 0.42), "<b>", "&\x1b[31m\x00")
	var out bytes.Buffer
	if err := SVG(&out, line, 0); err != nil {
		t.Fatal(err)
	}
	elements := map[string]bool{}
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local] = true
		}
	}
	want := map[string]bool{"svg": true, "title": true, "style": true, "rect": true, "text": true, "line": true}
	if diff := cmp.Diff(want, elements); diff != "" {
		t.Errorf("elements (-want +got):\n%s", diff)
	}
}
