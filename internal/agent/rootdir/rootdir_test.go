package rootdir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill makes directories and files in a new directory.
func fill(t *testing.T, names ...string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(root, name, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestEmpty(t *testing.T) {
	stays := []string{"config.yaml", "kubeadm-flags.env", "pki"}
	root := fill(t, slices.Concat(stays, made())...)
	if err := empty(root); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(stays, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRemove(t *testing.T) {
	root := fill(t, "pki", "pods")
	if err := Remove(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", root, err)
	}
}
