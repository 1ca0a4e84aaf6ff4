package fc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/pod/steps/volume/scsi"
)

// FuzzUnstage removes the shared part of a volume with any identity and any names of its disk. Nothing outside the
// agent's directory changes, and the error for a damaged file names its directory.
func FuzzUnstage(f *testing.F) {
	const targets = `{"WWNs":["500a","500b"],"LUN":"1"}`
	f.Add([]byte(`{"name":"500a-500b-lun-1"}`), []byte(targets))
	f.Add([]byte(`{"name":"500a-500b-lun-1","block":true}`), []byte(targets))
	f.Add([]byte(`{"name":"3600508b4"}`), []byte(`{"WWIDs":["3600508b4"]}`))
	f.Add([]byte(`{"name":"../../../../outside"}`), []byte(`{"WWNs":["("],"LUN":"("}`))
	f.Add([]byte("null"), []byte(`{"WWNs":[null]}`))
	f.Add([]byte("{"), []byte("["))
	f.Fuzz(func(t *testing.T, id, disk []byte) {
		dir := t.TempDir()
		k := New(Options{Root: filepath.Join(dir, "root"),
			Machine: scsi.Machine{Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")}})
		part := filepath.Join(k.o.Root, "plugins", dirName, "v")
		links := filepath.Join(dir, "dev/disk/by-path")
		for _, path := range []string{part, links, filepath.Join(dir, "outside")} {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for name, content := range map[string][]byte{filepath.Join(part, "id"): id, filepath.Join(part, diskFile): disk,
			filepath.Join(links, "other-lun-1"): nil} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Unstage(t.Context(), filepath.Join(part, "globalmount")); err != nil {
			if _, damaged := load(filepath.Join(part, "globalmount")); damaged != nil &&
				!strings.Contains(damaged.Error(), part) {
				t.Errorf("the error does not name %s: %v", part, damaged)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "outside")); err != nil {
			t.Errorf("the directory outside is gone: %v", err)
		}
	})
}
