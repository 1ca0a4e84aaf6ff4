package guard

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func explode(list []int, i int) int { return list[i] }

func TestCallReturnsPanicWithItsPlace(t *testing.T) {
	p := Of(Call(func() error { explode(nil, 3); return nil }))
	if p == nil || p.Value != "runtime error: index out of range [3] with length 0" {
		t.Fatalf("Call returned %v", p)
	}
	if got := p.Error(); !strings.Contains(got, "guard.explode (") || !strings.Contains(got, "guard_test.go:") {
		t.Errorf("Error() = %q: it does not name the function and the line", got)
	}
	want := errors.New("plain")
	if err := Call(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("Call returned %v, want the function's own error", err)
	}
}

func TestGroupPassesPanicToWaiter(t *testing.T) {
	ended := false
	err := Call(func() error {
		var g Group
		g.Go(func() { explode(nil, 1) })
		g.Go(func() { ended = true })
		g.Wait()
		return nil
	})
	if p := Of(err); p == nil || !strings.Contains(p.Stack, "guard.explode(") || !ended {
		t.Errorf("Wait passed on %v, the other function ended: %v", err, ended)
	}
}

func TestGoReportsPanic(t *testing.T) {
	failed := make(chan *Panic)
	Go(func() { panic("lost") }, func(p *Panic) { failed <- p })
	if p := <-failed; p.Value != "lost" {
		t.Errorf("reported %v", p)
	}
}

// The test runs itself: the child ends with a panic, and the text that Go writes then names the subject.
func TestSubjectOfEndedProcess(t *testing.T) {
	if path := os.Getenv("GUARD_CRASH"); path != "" {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
			t.Fatal(err)
		}
		go About("pod default/web uid=u1", func() { explode(nil, 2) })
		select {}
	}
	path := filepath.Join(t.TempDir(), "crash")
	cmd := exec.Command(os.Args[0], "-test.run=^TestSubjectOfEndedProcess$")
	cmd.Env = append(os.Environ(), "GUARD_CRASH="+path)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("the process did not panic: %s", out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := Subject(string(text)); got != "pod default/web uid=u1" {
		t.Errorf("Subject = %q of\n%s", got, text)
	}
	if !strings.Contains(string(text), "guard.explode(") {
		t.Errorf("the text lacks the stack of the panic:\n%s", text)
	}
}

func TestSubjectIsEmptyWithoutAbout(t *testing.T) {
	if got := Subject("panic: while\n\ngoroutine 1 [running]:\nwhile working on pod x\n"); got != "" {
		t.Errorf("Subject = %q", got)
	}
}
