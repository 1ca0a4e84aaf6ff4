package cpulist

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"
)

func TestParse(t *testing.T) {
	for text, want := range map[string][]int{
		"":              nil,
		"\n":            nil,
		"0":             {0},
		"0-3,8,10-11\n": {0, 1, 2, 3, 8, 10, 11},
		"8191":          {8191},
	} {
		got, err := Parse(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Parse(%q): %v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"a", "3-1", "-1", "0-8192", "4294967296", "0,,1", "0-4294967295", "1-"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q): %v, want an error", text, got)
		}
	}
}

func TestMask(t *testing.T) {
	for text, want := range map[string][]int{
		"0":                 nil,
		"f\n":               {0, 1, 2, 3},
		"00000001,80000000": {31, 32},
	} {
		got, err := Mask(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Mask(%q): %v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1,,1", "100000000"} {
		if got, err := Mask(text); err == nil {
			t.Errorf("Mask(%q): %v, want an error", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "0-3,8,10-11\n", "0-8191", "3-1", "9,9", "1-2-3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := Parse(text)
		if err != nil {
			return
		}
		if len(ids) > 0 && (slices.Min(ids) < 0 || slices.Max(ids) >= Max) {
			t.Fatalf("%q: an id is out of range: %v", text, ids)
		}
		again, err := Parse(cpuset.New(ids...).String())
		if err != nil || !cpuset.New(again...).Equals(cpuset.New(ids...)) {
			t.Fatalf("%q gives %v, parsed again %v, error %v", text, ids, again, err)
		}
	})
}

func FuzzMask(f *testing.F) {
	for _, text := range []string{"", "f", "00000001,80000000", "ffffffff,,1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := Mask(text)
		if err == nil && !slices.IsSorted(ids) {
			t.Fatalf("%q gives %v", text, ids)
		}
	})
}
