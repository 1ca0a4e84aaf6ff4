package runtime

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	want := []string{"holder-abababababab", "runc-abababababab"}
	var files []string
	for _, p := range got {
		files = append(files, p.file())
	}
	slices.Sort(files)
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("installed names (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"runc\n", "12  runc\n", sum + " runc\n"} {
		if _, err := parseSums(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// A second installation succeeds, keeps the programs and removes stale files.
func TestInstallPrograms(t *testing.T) {
	programs, err := embeddedPrograms()
	if err != nil && os.Geteuid() != 0 {
		t.Skipf("only root's make unit builds the programs: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := layout{root: t.TempDir()}
	stale := filepath.Join(l.bin(), "runc-0123456789ab")
	for range 2 {
		if err := installPrograms(l, programs); err != nil {
			t.Fatal(err)
		}
		for name := range maps.Keys(programs) {
			if info, err := os.Stat(l.program(name)); err != nil || info.Mode().Perm()&0o111 == 0 {
				t.Errorf("%s is not executable: %v", l.program(name), err)
			}
		}
		if _, err := os.Stat(stale); err == nil {
			t.Errorf("stale file %s was not removed", stale)
		}
		if err := os.WriteFile(stale, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(l.program("runc"), "--version").CombinedOutput(); err != nil ||
		!bytes.Contains(out, []byte("libseccomp")) {
		t.Errorf("runc has no seccomp: %v\n%s", err, out)
	}
	delete(programs, "bridge")
	if err := installPrograms(l, programs); err == nil || !strings.Contains(err.Error(), "make assets") {
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
