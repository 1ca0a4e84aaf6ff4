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

// Dir makes a directory whose path is short enough for sockets, and skips the test unless it runs as root. At the
// test's end, it calls sweep and removes the directory. sweep reports what still uses the directory, and ends it.
func Dir(t testing.TB, what string, sweep func(dir string)) string {
	t.Helper()
	Need(t, what)
	dir, err := os.MkdirTemp("/tmp", "bt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sweep(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
