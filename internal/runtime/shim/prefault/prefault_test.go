//go:build cgo

package prefault

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// childEnv is set in the processes that the test starts: a program prefaults when it starts.
const childEnv = "BERTH_TEST_PREFAULT"

// A container's first process has all its code and the beginning of its heap in memory when its main function begins.
// Other processes map only what they use.
func TestPrefault(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		if heap == 0 {
			fmt.Println("\nnothing")
			return
		}
		const chunk = 4 << 20 // Go maps the heap in pieces of this size, and has mapped one by then
		code, first := mappingAt(t, reflect.ValueOf(TestPrefault).Pointer()), mappingAt(t, heap)
		fmt.Printf("\ncode %t, heap %t\n", code.resident == code.end-code.begin,
			first.resident >= min(used, chunk-heap%chunk))
		return
	}
	for variable, want := range map[string]string{
		"_LIBCONTAINER_INITPIPE=3": "\ncode true, heap true\n",
		"ANOTHER=3":                "\nnothing\n",
	} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPrefault$")
		child.Env = append(os.Environ(), childEnv+"=1", variable)
		if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("with %s: %v, %s, want %q", variable, err, out, want)
		}
	}
}

// mapping is a range of this process's addresses, and how many bytes of it are in memory.
type mapping struct{ begin, end, resident uintptr }

// mappingAt returns the mapping that contains an address.
func mappingAt(t *testing.T, address uintptr) (m mapping) {
	t.Helper()
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var begin, end, resident uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &begin, &end); n == 2 {
			m = mapping{begin: begin, end: end}
			continue
		}
		n, _ := fmt.Sscanf(lines.Text(), "Rss: %d kB", &resident)
		if n == 1 && m.begin <= address && address < m.end {
			m.resident = resident << 10
			return m
		}
	}
	t.Fatalf("no mapping contains %x", address)
	return mapping{}
}
