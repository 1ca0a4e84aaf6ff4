package program

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSums(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	got, err := parseSums(sum + "  runc\n" + sum + "  holder\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"runc": sum, "holder": sum}, got); diff != "" {
		t.Errorf("checksums (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"runc\n", "12  runc\n", sum + " runc\n"} {
		if _, err := parseSums(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// A second installation succeeds, keeps the programs and removes stale files. The plugins are installed on demand.
func TestInstall(t *testing.T) {
	_, err := Sums()
	if err != nil && os.Geteuid() != 0 {
		t.Skipf("only root's make unit builds the programs: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := In(t.TempDir())
	check := func(path string) {
		t.Helper()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("%s is not executable: %v", path, err)
		}
	}
	stale := filepath.Join(p.Dir, "runc-0123456789ab")
	for i := range 3 {
		if err := p.Install(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{Runc, Shim, Holder} {
			check(p.Path(name))
		}
		for _, name := range plugins {
			if path := filepath.Join(p.Plugins, name); i > 0 {
				check(path)
			} else if _, err := os.Lstat(path); err == nil {
				t.Errorf("plugin %s is installed before it is needed", name)
			}
		}
		if _, err := os.Stat(stale); err == nil {
			t.Errorf("stale file %s was not removed", stale)
		}
		if err := os.WriteFile(stale, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := p.InstallPlugins(); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(p.Path(Runc), "--version").CombinedOutput(); err != nil ||
		!bytes.Contains(out, []byte("libseccomp")) {
		t.Errorf("runc has no seccomp: %v\n%s", err, out)
	}
	err = p.install(map[string]string{}, p.Plugins, "bridge")
	if err == nil || !strings.Contains(err.Error(), "make assets") {
		t.Errorf("a build without a program: %v", err)
	}
}

func TestWriteExecutable(t *testing.T) {
	dir := t.TempDir()
	if err := writeExecutable(filepath.Join(dir, "program"), strings.NewReader("text"),
		strings.Repeat("0", 64)); err == nil {
		t.Error("content with another checksum was accepted")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v (%v)", left, err)
	}
}
