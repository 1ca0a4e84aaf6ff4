package oci

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOwnPIDs(t *testing.T) {
	for config, want := range map[string]bool{
		`{"linux":{"namespaces":[{"type":"pid"}]}}`:                         true,
		`{"linux":{"namespaces":[{"type":"pid","path":"/proc/7/ns/pid"}]}}`: false,
		`{"linux":{"namespaces":[{"type":"mount"}]}}`:                       false,
		`damaged`: true,
	} {
		bundle := t.TempDir()
		if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ReadSpec(bundle).OwnPIDs(); got != want {
			t.Errorf("%s: %v, want %v", config, got, want)
		}
	}
}
