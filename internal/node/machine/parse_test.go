package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"
)

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
