package eventually

import (
	"fmt"
	"testing"
	"time"
)

func TestWaits(t *testing.T) {
	calls := 0
	True(t, "three calls", func() bool { calls++; return calls == 3 })
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}

// recorder notes the failure of a test and lets the test go on.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

func TestFailureNamesWhatIsLeft(t *testing.T) {
	r := &recorder{TB: t}
	func() {
		defer func() { _ = recover() }()
		wait(r, 10*time.Millisecond, func() string { return "two pods" })
	}()
	if r.failure != "not within 10ms: two pods" {
		t.Errorf("the failure is %q", r.failure)
	}
}
