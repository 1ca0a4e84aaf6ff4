package kernel

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettings(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"vm/overcommit_memory": "0\n", "vm/panic_on_oom": "0\n", "kernel/panic": "0\n", "kernel/panic_on_oops": "1\n",
		"kernel/keys/root_maxkeys": "1000000\n", "kernel/keys/root_maxbytes": "20000\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wrong, err := Wrong(os.DirFS(root))
	want := []string{"vm.overcommit_memory is 0, not 1", "kernel.panic is 0, not 10",
		"kernel.keys.root_maxbytes is 20000, not 25000000"}
	if diff := cmp.Diff(want, wrong); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if err := Set(root); err != nil {
		t.Fatal(err)
	}
	if wrong, err := Wrong(os.DirFS(root)); len(wrong) > 0 || err != nil {
		t.Errorf("after they were set: %q, error %v", wrong, err)
	}
	if err := os.Remove(filepath.Join(root, "kernel/panic")); err != nil {
		t.Fatal(err)
	}
	if _, err := Wrong(os.DirFS(root)); err == nil {
		t.Error("a missing setting is not reported")
	}
}
