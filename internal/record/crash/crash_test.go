package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/base/guard"
)

// The test runs itself: the child ends with a panic, and this process finds its report.
func TestOpenReportsPanicOfPreviousProcess(t *testing.T) {
	if dir := os.Getenv("CRASH_DIR"); dir != "" {
		if _, _, err := Open(dir); err != nil {
			t.Fatal(err)
		}
		go guard.About("pod default/web uid=u1", func() { panic("out of luck") })
		select {}
	}
	dir := filepath.Join(t.TempDir(), "crashes")
	if reports, fresh, err := Open(dir); err != nil || len(reports) > 0 || fresh != nil {
		t.Fatalf("first Open: %v, %v, %v", reports, fresh, err)
	}
	for range 2 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOpenReportsPanicOfPreviousProcess$")
		cmd.Env = append(os.Environ(), "CRASH_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("the process did not panic: %s", out)
		}
	}
	reports, fresh, err := Open(dir)
	if err != nil || len(reports) != 2 || fresh == nil || fresh.File != reports[1].File {
		t.Fatalf("Open after two panics: %v, %v, %v", reports, fresh, err)
	}
	if fresh.Subject != "pod default/web uid=u1" || fresh.Cause != "panic: out of luck" || fresh.Time.IsZero() {
		t.Errorf("report %+v", fresh)
	}
	text, err := os.ReadFile(fresh.File)
	if err != nil || !strings.Contains(string(text), "TestOpenReportsPanicOfPreviousProcess") {
		t.Errorf("the report has no stack: %v\n%s", err, text)
	}
	if reports, fresh, err := Open(dir); err != nil || len(reports) != 2 || fresh != nil {
		t.Errorf("Open reported the same end twice: %v, %v, %v", reports, fresh, err)
	}
}

func TestOpenKeepsNewestReports(t *testing.T) {
	dir := t.TempDir()
	for i := range maxReports + 5 {
		name := prefix + "20260301T1200" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + ".000Z" + suffix
		if err := os.WriteFile(filepath.Join(dir, name), []byte("panic: x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reports, _, err := Open(dir)
	if err != nil || len(reports) != maxReports || !strings.Contains(reports[0].File, "120005") {
		t.Errorf("%d reports, %v; want the newest %d", len(reports), err, maxReports)
	}
}

// A power cut leaves an empty report, and the directory may have something that is no file. The others are reported.
func TestOpenReportsBesideDamagedOnes(t *testing.T) {
	dir := t.TempDir()
	at := func(second string) string { return filepath.Join(dir, prefix+"20260301T1200"+second+".000Z"+suffix) }
	for file, text := range map[string]string{at("01"): "panic: x\n", at("02"): "", at("04"): "panic: y\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at("03"), 0o700); err != nil {
		t.Fatal(err)
	}
	reports, _, err := Open(dir)
	if err == nil || !strings.Contains(err.Error(), at("03")) {
		t.Errorf("error %v does not name %s", err, at("03"))
	}
	var causes []string
	for _, r := range reports {
		causes = append(causes, r.Cause)
	}
	if want := []string{"panic: x", "unknown: the report is empty", "panic: y"}; !slices.Equal(causes, want) {
		t.Errorf("causes %q, want %q", causes, want)
	}
	if _, err := os.Stat(filepath.Join(dir, current)); err != nil {
		t.Errorf("the next panic has no file: %v", err)
	}
}
