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
	"unsafe"
)

// childEnv is set in the processes that the test starts: a program prefaults when it starts.
const childEnv = "BERTH_TEST_PREFAULT"

// A container's first process has all its code and the beginning of its heap in memory when its main function begins.
// Other processes have only the pages of the heap that they have used. Their code may be in memory as a whole: the
// kernel also maps what it has in its cache around a page.
func TestPrefault(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		var onStack byte
		stack := uintptr(unsafe.Pointer(&onStack))
		code, heap := mappingAt(t, reflect.ValueOf(TestPrefault).Pointer()), mappingAt(t, stack)
		fmt.Printf("\ncode %t, heap %t\n", code.resident == code.end-code.begin,
			heap.resident >= min(used, heap.end-stack)) // the first piece of the heap may be smaller
		return
	}
	for variable, want := range map[string]string{
		"_LIBCONTAINER_INITPIPE=3": "\ncode true, heap true\n",
		"ANOTHER=3":                ", heap false\n",
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
