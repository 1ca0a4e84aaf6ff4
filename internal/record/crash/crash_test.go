package crash

import (
	"os"
	"os/exec"
	"path/filepath"
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
