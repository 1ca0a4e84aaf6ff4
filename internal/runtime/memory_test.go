package runtime

import (
	"bytes"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMappings(t *testing.T) {
	got := parseMappings(`018a9000-036ab000 r--p 014a9000 fe:00 1234   /usr/bin/berth
Size:              30728 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
036ab000-036ac000 r--p 032aa000 fe:00 1234   /usr/my bin/b (deleted)
Anonymous:             4 kB
7ffcdd6d2000-7ffcdd6d4000 rw-p 00000000 00:00 0
Anonymous:             8 kB
2-1 r--p 0 0 0 /x
Anonymous:             0 kB
nonsense r--p 0 0 0 /x
Anonymous:             0 kB

00001000-00002000 r--p 00000000 fe:00 1 /untold
`)
	want := []mapping{
		{0x18a9000, 0x36ab000, "r--p", "/usr/bin/berth", 0},
		{0x36ab000, 0x36ac000, "r--p", "/usr/my bin/b", 4},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The program goes on reading what it was relieved of, and calling into the C
// library: what the linker wrote into its own read-only pages is still there.
func TestDropReadOnlyPages(t *testing.T) {
	before := relocated(t)
	if err := dropReadOnlyPages(); err != nil {
		t.Fatal(err)
	}
	if embedded, err := embeddedPrograms(); err != nil || len(embedded) == 0 {
		t.Errorf("%d embedded programs, %v", len(embedded), err)
	}
	if !bytes.Equal(before, relocated(t)) {
		t.Error("relocated pages were dropped")
	}
	var threads sync.WaitGroup
	for range 16 {
		threads.Go(runtime.LockOSThread) // never unlocked: each ends with its thread
	}
	threads.Wait()
}

// relocated is the content of this program's read-only pages that are not the
// file's.
func relocated(t *testing.T) []byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	var all []byte
	for _, m := range parseMappings(string(smaps)) {
		if m.access != "r--p" || m.path != self || m.own == 0 {
			continue
		}
		part := make([]byte, m.end-m.start)
		if _, err := memory.ReadAt(part, int64(m.start)); err != nil {
			t.Fatal(err)
		}
		all = append(all, part...)
	}
	return all
}
