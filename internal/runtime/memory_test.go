package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMapping(t *testing.T) {
	type result struct {
		M  mapping
		OK bool
	}
	for line, want := range map[string]result{
		"018a8000-036a9000 r--p 014a8000 fe:00 1234   /usr/bin/berth":          {mapping{0x18a8000, 0x36a9000, "r--p", "/usr/bin/berth"}, true},
		"018a8000-036a9000 r-xp 014a8000 fe:00 1234   /usr/my bin/b (deleted)": {mapping{0x18a8000, 0x36a9000, "r-xp", "/usr/my bin/b"}, true},
		"7ffcdd6d2000-7ffcdd6d4000 rw-p 00000000 00:00 0":                      {},
		"2-1 r--p 0 0 0 /x":      {},
		"nonsense r--p 0 0 0 /x": {},
		"":                       {},
	} {
		m, ok := parseMapping(line)
		if diff := cmp.Diff(want, result{m, ok}, cmp.AllowUnexported(mapping{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}

// The program goes on reading what it was relieved of.
func TestDropReadOnlyPages(t *testing.T) {
	if err := dropReadOnlyPages(); err != nil {
		t.Fatal(err)
	}
	if embedded, err := embeddedPrograms(); err != nil || len(embedded) == 0 {
		t.Errorf("%d embedded programs, %v", len(embedded), err)
	}
}
