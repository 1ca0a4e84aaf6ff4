package podlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPaths(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	long := strings.Repeat("n", 200)
	tests := []struct{ name, got, want string }{
		{"links", LinkDir(DefaultDir), "/var/log/containers"},
		{"no links", LinkDir("/elsewhere"), ""},
		{"pod directory", PodDir(DefaultDir, "ns", "web", "u-1"), "/var/log/pods/ns_web_u-1"},
		{"file", File("app", 3), "app/3.log"},
		{"legacy link", LegacyLink(DefaultLegacyDir, "ns", "web", "app", id),
			"/var/log/containers/web_ns_app-" + id + ".log"},
		{
			"long legacy link", LegacyLink("/l", "ns", long, "app", id),
			"/l/" + (long + "_ns_app-" + id)[:251] + ".log",
		},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s = %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestLastInstance(t *testing.T) {
	tests := []struct {
		name  string
		files []string
		want  int
		found bool
	}{
		{"none", nil, 0, false},
		{"first", []string{"0.log"}, 0, true},
		{"by number, not by text", []string{"2.log", "10.log", "9.log"}, 10, true},
		{"rotated", []string{"3.log", "4.log.20260301-120000", "5.log.20260301-120000.gz"}, 5, true},
		{"others", []string{"app.log", "1.txt", "7.logs", "-3.log", ".log", "99999999999999999999.log"}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			n, found, err := LastInstance(dir)
			if n != tt.want || found != tt.found || err != nil {
				t.Errorf("LastInstance = %d, %v, %v; want %d, %v", n, found, err, tt.want, tt.found)
			}
		})
	}
	if n, found, err := LastInstance("/does/not/exist"); n != 0 || found || err != nil {
		t.Errorf("no directory: %d, %v, %v", n, found, err)
	}
}

// A pod with a hostPath on the directory of all logs cannot have links read as its logs.
func TestLogsAreNoLinks(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "app", "0.log")
	line := []byte("2026-03-01T12:00:00.000000000Z stdout F secret\n")
	if err := errors.Join(os.Mkdir(filepath.Dir(secret), 0o755), os.WriteFile(secret, line, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(pod string) error{
		"file": func(pod string) error {
			return errors.Join(os.MkdirAll(filepath.Join(pod, "app"), 0o755),
				os.Symlink(secret, filepath.Join(pod, "app/0.log")))
		},
		"container": func(pod string) error {
			return errors.Join(os.Mkdir(pod, 0o755), os.Symlink(filepath.Dir(secret), filepath.Join(pod, "app")))
		},
		"pod": func(pod string) error { return os.Symlink(outside, pod) },
		"pipe": func(pod string) error {
			return errors.Join(os.MkdirAll(filepath.Join(pod, "app"), 0o755),
				unix.Mkfifo(filepath.Join(pod, "app/0.log"), 0o600))
		},
	} {
		pod := filepath.Join(root, name)
		if err := plant(pod); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		err := Read(t.Context(), filepath.Join(pod, File("app", 0)), Options{}, &text)
		if !errors.Is(err, fs.ErrNotExist) || text.Len() > 0 {
			t.Errorf("%s: read %q, %v", name, text.String(), err)
		}
	}
}
