package tasks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/base/archive/archivetest"
)

// The changed files of a checkpoint cannot fill the disk with the zeros of a sparse file.
func TestRestoredFilesAreBounded(t *testing.T) {
	bundle, checkpoint := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o700); err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(checkpoint, "rootfs-diff.tar")
	if err := os.WriteFile(changed, archivetest.Sparse("large", 1<<40), 0o600); err != nil {
		t.Fatal(err)
	}
	err := restoreFiles(t.Context(), bundle, filepath.Join(checkpoint, "checkpoint"))
	if err == nil || !strings.Contains(err.Error(), "archive is too large") {
		t.Errorf("got %v, want an error that the archive is too large", err)
	}
}
