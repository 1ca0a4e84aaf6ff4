package sigtrace

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

func TestParse(t *testing.T) {
	const text = `# tracer: nop
#
          shim-12    [001] d..1.    99.500000: signal_generate: sig=15 errno=0 code=0 comm=workload pid=7 grp=1 res=0
         bench-10    [000] .....   100.000250: tracing_mark_write: berth-bench-begin
          shim-12    [001] d..1.   100.090250: signal_generate: sig=15 errno=0 code=0 comm=workload pid=8 grp=1 res=0
          a b-c-12   [001] d..1.   101.000250: signal_generate: sig=15 errno=0 code=0 comm=workload pid=9 grp=1 res=0
`
	sent, err := parse(text)
	if want := []time.Duration{90 * time.Millisecond, time.Second}; err != nil || !slices.Equal(sent, want) {
		t.Errorf("parse: %v, %v, want %v", sent, err, want)
	}
	if _, err := parse(text[:100]); err == nil {
		t.Error("a trace without its begin was read")
	}
}

func TestSentToARealProcess(t *testing.T) {
	roottest.Need(t, "mounting")
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(known), "\ttracefs\n") {
		t.Skip("needs a kernel with tracefs, which shows when a signal was sent")
	}
	trace, err := Start(unix.SIGTERM, "sleep")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := trace.Close(); err != nil {
			t.Error(err)
		}
	}()
	victim := exec.CommandContext(t.Context(), "sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := trace.Mark(); err != nil {
		t.Fatal(err)
	}
	if err := victim.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	if err := victim.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the process ended with %v, want the signal", err)
	}
	sent, err := trace.Sent()
	if err != nil || len(sent) != 1 || sent[0] <= 0 || sent[0] > took {
		t.Errorf("sent after %v, %v, want one time below %v", sent, err, took)
	}
}
