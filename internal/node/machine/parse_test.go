package machine

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"
)

func TestParseList(t *testing.T) {
	for text, want := range map[string][]int{
		"":              nil,
		"\n":            nil,
		"0":             {0},
		"0-3,8,10-11\n": {0, 1, 2, 3, 8, 10, 11},
		"8191":          {8191},
	} {
		got, err := parseList(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("parseList(%q): %v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"a", "3-1", "-1", "0-8192", "4294967296", "0,,1", "0-4294967295", "1-"} {
		if got, err := parseList(text); err == nil {
			t.Errorf("parseList(%q): %v, want an error", text, got)
		}
	}
}

func TestParseMask(t *testing.T) {
	for text, want := range map[string][]int{
		"0":                 nil,
		"f\n":               {0, 1, 2, 3},
		"00000001,80000000": {31, 32},
	} {
		got, err := parseMask(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("parseMask(%q): %v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1,,1", "100000000"} {
		if got, err := parseMask(text); err == nil {
			t.Errorf("parseMask(%q): %v, want an error", text, got)
		}
	}
}

func FuzzParseList(f *testing.F) {
	for _, text := range []string{"", "0-3,8,10-11\n", "0-8191", "3-1", "9,9", "1-2-3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := parseList(text)
		if err != nil {
			return
		}
		if len(ids) > 0 && (slices.Min(ids) < 0 || slices.Max(ids) >= maxID) {
			t.Fatalf("%q: an id is out of range: %v", text, ids)
		}
		again, err := parseList(setOf(ids).String())
		if err != nil || !setOf(again).Equals(setOf(ids)) {
			t.Fatalf("%q gives %v, parsed again %v, error %v", text, ids, again, err)
		}
	})
}

func FuzzParseMask(f *testing.F) {
	for _, text := range []string{"", "f", "00000001,80000000", "ffffffff,,1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := parseMask(text)
		if err == nil && !slices.IsSorted(ids) {
			t.Fatalf("%q gives %v", text, ids)
		}
	})
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add("MemTotal:       24684092 kB\nMemFree: 1 kB\n")
	f.Add("Node 0 MemTotal:       24684092 kB\n")
	f.Add("MemTotal: 9223372036854775807 kB")
	f.Fuzz(func(t *testing.T, text string) {
		if size, err := parseMemTotal(text); err == nil && (size < 0 || size%1024 != 0) {
			t.Fatalf("%q gives %d bytes", text, size)
		}
	})
}

func TestParseSizesAndNumbers(t *testing.T) {
	type small struct {
		Cache, Memory, Page int64
		Processors          []int
	}
	var got small
	var errs [2]error
	got.Cache, errs[0] = parseSize("32768K\n")
	got.Memory, errs[1] = parseMemTotal("MemFree: 1 kB\nMemTotal:       2 kB\n")
	got.Page, _ = pageSize("hugepages-2048kB")
	got.Processors = parseProcessors([]byte("processor\t: 0\nmodel name: x\n\nprocessor\t: 7\n"))
	want := small{Cache: 32 << 20, Memory: 2048, Page: 2 << 20, Processors: []int{0, 7}}
	if diff := cmp.Diff(want, got); diff != "" || errs != [2]error{} {
		t.Errorf("(-want +got), errors %v:\n%s", errs, diff)
	}
	for _, name := range []string{"hugepages-", "hugepages-1", "pages-2048kB", "hugepages-xkB"} {
		if size, ok := pageSize(name); ok {
			t.Errorf("pageSize(%q): %d, want none", name, size)
		}
	}
}

// compareSets treats the empty set and the zero set as equal, which CPUSet.Equals does not.
func compareSets(a, b cpuset.CPUSet) bool { return a.String() == b.String() }
