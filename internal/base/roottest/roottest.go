package roottest

import (
	"os"
	"testing"
)

// Need skips the test unless it runs as root. what names the reason in the present participle: "mounting".
func Need(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("%s needs root: run make test as root", what)
	}
}
