package flexvolume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzUnstage removes the shared part of a volume with any identity. Nothing outside the agent's directory changes,
// and the error for a damaged file names its directory.
func FuzzUnstage(f *testing.F) {
	f.Add([]byte(`{"driver":"example.com/files","name":"data"}`))
	f.Add([]byte(`{"driver":"../../../outside","name":"x"}`))
	f.Add([]byte(`{"driver":"example.com/files","name":"../../../../../../../outside"}`))
	f.Add([]byte(`{"driver":"","name":""}`))
	f.Add([]byte("null"))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, id []byte) {
		dir := t.TempDir()
		k := New(Options{Root: filepath.Join(dir, "root"), Dir: filepath.Join(dir, "drivers"), Node: "node"})
		part := filepath.Join(k.o.Root, "plugins/kubernetes.io~flexvolume/v")
		device := k.devicePath("example.com/files", "data")
		driver := filepath.Join(k.o.Dir, "example.com~files")
		for _, path := range []string{part, device, driver, filepath.Join(dir, "outside")} {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		const script = "#!/bin/sh\necho '{\"status\":\"Success\"}'\n"
		if err := errors.Join(os.WriteFile(filepath.Join(part, "id"), id, 0o600),
			os.WriteFile(filepath.Join(driver, "files"), []byte(script), 0o700)); err != nil {
			t.Fatal(err)
		}
		err := k.Unstage(t.Context(), filepath.Join(part, "globalmount"))
		if err != nil && strings.HasPrefix(err.Error(), "read ") && !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s: %v", part, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "outside")); err != nil {
			t.Errorf("the directory outside is gone: %v", err)
		}
	})
}
