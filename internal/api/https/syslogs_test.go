package https

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestSystemLogs(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no journalctl
	n := start(t, nil)
	dir := n.Dirs.SystemLogs
	secret := filepath.Join(t.TempDir(), "secret")
	for name, content := range map[string]string{
		filepath.Join(dir, "syslog"): "a line\n", filepath.Join(dir, "kubelet.log"): "of kubelet\n",
		filepath.Join(dir, "web/web.log"): "of web\n", filepath.Join(dir, "pods/x/0.log"): "of a pod\n",
		secret: "secret",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"out": secret, "up": "../../../etc/passwd",
		"inside.log": dir + "/pods/x/0.log", "loop": dir + "/loop"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.log"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path string
		code int
		want string // part of the body
	}{
		{"/logs/pipe.log", 403, "Forbidden"}, // and it does not wait for a writer
		{"/logs/?query=pipe", 200, "error getting log for pipe: not a regular file but a named pipe"},
		{"/logs/", 200, `<a href="syslog">`},
		{"/logs/syslog", 200, "a line\n"},
		{"/logs/inside.log", 200, "of a pod\n"},
		{"/logs/none", 404, "not found"},
		{"/logs/out", 403, "Forbidden"},
		{"/logs/up", 403, "Forbidden"},
		{"/logs/loop", 403, "Forbidden"},
		{"/logs/..%2f..%2fetc%2fpasswd", 404, "not found"},
		{"/logs/?query=kubelet", 200, "of kubelet\n"},
		{"/logs/?query=web", 200, "of web\n"},
		{"/logs/?query=/syslog", 200, "a line\n"},
		{"/logs/?query=none", 200,
			"log not found for none: it has no file in " + dir +
				", and the journal cannot be read: exec: \"journalctl\""},
		{"/logs/?query=..", 200, "error getting log for .."},
		{"/logs/?query=kubelet&tailLines=3", 200, "try without specifying options"},
		{"/logs/?query=+", 400, "query may not be empty"},
		{"/logs/?query=a&sinceTime=now", 400, `sinceTime="now" is not a time`},
		{"/logs/syslog?query=a", 406, "path not allowed in query mode"},
		{"/logs/?query=a%3Bb", 406, "unsupported characters"},
		{"/logs/?tailLines=3", 406, "name a service or a file"},
	}
	for _, tt := range tests {
		code, body := n.ask(t, "admin", "GET", tt.path, "")
		if code != tt.code || !strings.Contains(body, tt.want) || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %q, want %d %q", tt.path, code, body, tt.code, tt.want)
		}
	}
}

func TestJournal(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\nif [ \"$1\" = --field ]; then echo kubelet.service; else echo \"$@\"; fi\n"
	if err := os.WriteFile(filepath.Join(bin, "journalctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	n := start(t, nil)
	const want = "--utc --no-pager --output=short-precise --since=2026-01-02 01:04:05 --lines=3 --unit=kubelet " +
		"--grep=a|b --boot=-1\n" +
		"\noptions present and query resolved to log files for [other]\ntry without specifying options\n"
	_, body := n.ask(t, "admin", "GET",
		"/logs/?query=kubelet&query=other&sinceTime=2026-01-02T03:04:05%2b02:00&tailLines=3&pattern=a|b&boot=-1", "")
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
}

func TestLogQuery(t *testing.T) {
	for raw, want := range map[string]string{
		"query=a&query=b&query=c&query=d&query=e": "query: at most 4 services",
		"query=" + strings.Repeat("a", 257): `query "` + strings.Repeat("a", 257) +
			`": length must be at most 256`,
		"query=a&query=/b":         "query: cannot specify a file and a service",
		"query=/a&query=/b":        "query: cannot specify more than one file",
		"query=/a&boot=0":          "query: cannot specify a file with options",
		"query=a&boot=1":           "boot must be less than 1",
		"query=a&tailLines=100001": "tailLines must be between 0 and 100000",
		"query=a&pattern=(":        "pattern: error parsing regexp: missing closing ): `(`",
		"query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z": "untilTime must be after sinceTime",
		"query=a&untilTime=2026-01-01T00:00:00Z":                                "",
	} {
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatal(err)
		}
		q, isQuery, err := parseLogQuery(values)
		if err != nil || !isQuery {
			t.Errorf("%s: isQuery %v, %v", raw, isQuery, err)
		}
		got := ""
		if err := q.check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
	if diff := cmp.Diff([]string{"a", "b.service"},
		first(
			logQuery{services: []string{"a", "b.service", "c"}}.split(
				"xc.service\na.service\nb.service"))); diff != "" {
		t.Error(diff)
	}
}

func first[A, B any](a A, _ B) A { return a }

// For any query, every argument of journalctl is an option with a value, and files stay inside the
// directory.
func FuzzLogQuery(f *testing.F) {
	f.Add("query=kubelet&tailLines=3&pattern=--x&sinceTime=2026-01-02T03:04:05Z")
	f.Add("query=%2F..%2Fetc&boot=-1")
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		q, _, err := parseLogQuery(values)
		if err != nil || q.check() != nil {
			return
		}
		for _, arg := range q.journalArgs(q.services)[2:] {
			name, _, valued := strings.Cut(arg, "=")
			if !valued || !strings.HasPrefix(name, "--") {
				t.Errorf("argument %q of %q", arg, raw)
			}
		}
		if !q.since.IsZero() && !q.until.IsZero() && q.until.Sub(q.since) < 0*time.Second {
			t.Errorf("until is before since: %q", raw)
		}
	})
}
