package runtime

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHasCNIConfig(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		file string
		want bool
	}{
		{"README", false},
		{"10-net.conf.bak", false},
		{"10-net.conflist", true},
	} {
		if err := os.WriteFile(filepath.Join(dir, test.file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := hasCNIConfig(dir)
		if err != nil || got != test.want {
			t.Errorf("with %s: %t, %v, want %t", test.file, got, err, test.want)
		}
	}
	if got, err := hasCNIConfig(filepath.Join(dir, "absent")); err != nil || got {
		t.Errorf("absent directory: %t, %v", got, err)
	}
}
