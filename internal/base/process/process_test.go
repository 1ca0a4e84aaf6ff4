package process

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestIDs(t *testing.T) {
	ids, err := IDs()
	if err != nil || !slices.Contains(ids, os.Getpid()) {
		t.Errorf("%v, %v; want also this process, %d", ids, err, os.Getpid())
	}
	for _, id := range ids {
		if id <= 0 {
			t.Errorf("a process has the ID %d", id)
		}
	}
	name, err := os.ReadFile(Path(os.Getpid(), "comm"))
	if err != nil || !strings.HasPrefix(string(name), "process.test") {
		t.Errorf("this process is %q, %v", name, err)
	}
}
