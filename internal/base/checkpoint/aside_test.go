package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// A file that was moved aside is known to later processes, until its key is saved again or discarded.
func TestSetAsideOutlivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	first := NewDir[state](dir, v1)
	for _, key := range []string{"default/a", "default/b", "default/c"} {
		if err := first.Save(key, state{Name: key}); err != nil {
			t.Fatal(err)
		}
	}
	write(t, first.file("default/a"), "damaged")
	if err := NewDir[state](dir, Format{Version: 9}).Save("default/b", state{}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.LoadAll(); err == nil {
		t.Fatal("nothing is damaged")
	}
	later := NewDir[state](dir, v1)
	if _, err := later.LoadAll(); err != nil {
		t.Fatal(err)
	}
	aside, err := later.SetAside()
	if err != nil || len(aside) != 2 || aside["default/a"] == nil || aside["default/b"] == nil {
		t.Fatalf("set aside: %v, %v", aside, err)
	}
	if _, err := os.Stat(aside["default/a"].Moved); err != nil || filepath.Dir(aside["default/a"].Path) != dir {
		t.Errorf("%+v: %v", aside["default/a"], err)
	}
	if err := later.Save("default/a", state{}); err != nil {
		t.Fatal(err)
	}
	if err := later.Discard("default/b"); err != nil {
		t.Fatal(err)
	}
	if aside, err := later.SetAside(); err != nil || len(aside) != 0 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}
