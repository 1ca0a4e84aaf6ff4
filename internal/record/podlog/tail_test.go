package podlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// logical returns the container's lines of a text from a place on.
func logical(text string, at start, stream Stream) []string {
	var all []string
	var j joiner
	for line := range strings.Lines(text[at.offset:]) {
		e, err := Parse([]byte(line))
		if err != nil || stream != "" && e.Stream != stream {
			continue
		}
		if p, ok := j.add(e); ok {
			all = append(all, string(p.Stream)+" "+string(p.Content))
		}
	}
	return all[at.skip:]
}

// randomLog returns a log of n entries. All its lines are complete. It has both streams, interleaved parts, and
// lines of another format.
func randomLog(rnd *rand.Rand, n int) string {
	var b strings.Builder
	open := map[Stream]bool{}
	for i := range n {
		stream := []Stream{Stdout, Stderr}[rnd.IntN(2)]
		partial := rnd.IntN(4) == 0
		open[stream] = partial
		if rnd.IntN(20) == 0 {
			b.WriteString("damaged line\n")
		}
		content := fmt.Sprint(i, strings.Repeat("x", rnd.IntN(60)))
		b.WriteString(render(Entry{time.Unix(int64(i), 0).UTC(), stream, partial, []byte(content)}))
	}
	for _, s := range []Stream{Stdout, Stderr} {
		if open[s] {
			b.WriteString(render(Entry{time.Unix(int64(n), 0).UTC(), s, false, nil}))
		}
	}
	return b.String()
}

func TestLastLines(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		text := randomLog(rnd, 1+rnd.IntN(60))
		for _, stream := range []Stream{"", Stdout, Stderr} {
			all := logical(text, start{}, stream)
			for want := range len(all) + 3 {
				block := 1 + rnd.IntN(300)
				at, found, err := lastLines(strings.NewReader(text), int64(len(text)), want, stream, block)
				if err != nil {
					t.Fatal(err)
				}
				if found != min(want, len(all)) {
					t.Errorf("seed %d: found %d of the last %d lines of %d", seed, found, want, len(all))
				}
				last := all[max(0, len(all)-want):]
				if diff := cmp.Diff(append([]string{}, last...),
					append([]string{}, logical(text, at, stream)...)); diff != "" {
					t.Fatalf("seed %d, last %d of stream %q in blocks of %d: %s", seed, want, stream, block, diff)
				}
			}
		}
	}
}

// counting counts the bytes read from a file.
type counting struct {
	*bytes.Reader
	read int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.read += len(p)
	return c.Reader.ReadAt(p, off)
}

func TestLastLinesReadsOnlyTheEnd(t *testing.T) {
	line := render(Entry{time.Unix(0, 0).UTC(), Stdout, false, bytes.Repeat([]byte("x"), 100)})
	only := render(Entry{time.Unix(0, 0).UTC(), Stderr, false, []byte("long ago")})
	tests := []struct {
		name string
		text string
		want int
		most int // bytes
	}{
		{"none", strings.Repeat(line, 100_000), 0, tailBlock},
		{"ten lines", strings.Repeat(line, 100_000), 10, tailBlock},
		{"a line of a stream that is silent since long", only + strings.Repeat(line, 100_000) + only + line, 2,
			2*maxLine + tailBlock},
		{"a line without end", line + strings.Repeat("x", 3*maxLine), 0, 4 * maxLine},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &counting{Reader: bytes.NewReader([]byte(tt.text))}
			_, found, err := lastLines(f, int64(len(tt.text)), tt.want, "", tailBlock)
			if err != nil || found != tt.want || f.read > tt.most {
				t.Errorf("found %d, %v, after %d bytes; want %d after at most %d", found, err, f.read, tt.want, tt.most)
			}
		})
	}
}
