package hostpath

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

func publish(t *testing.T, path string, kind corev1.HostPathType) (string, error) {
	source := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}
	return Kind{}.Publish(t.Context(), volume.Request{Volume: &corev1.Volume{VolumeSource: source}})
}

func TestPublishChecksTheType(t *testing.T) {
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": dir, "magic": "/proc/self/root", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	tests := []struct {
		path string
		kind corev1.HostPathType
		err  string // part of it; "" for none
	}{
		{dir, corev1.HostPathUnset, ""},
		{at("none"), corev1.HostPathUnset, ""},
		{dir, corev1.HostPathDirectory, ""},
		{at("link"), corev1.HostPathDirectory, ""},
		{at("file"), corev1.HostPathDirectory, "hostPath type check failed: " + at("file") + " is not a directory"},
		{at("none"), corev1.HostPathDirectory, "is not a directory: no such file"},
		{at("file"), corev1.HostPathFile, ""},
		{at("link/file"), corev1.HostPathFile, ""},
		{dir, corev1.HostPathFile, "is not a file"},
		{at("none"), corev1.HostPathFile, "is not a file: no such file"},
		{at("socket"), corev1.HostPathSocket, ""},
		{at("file"), corev1.HostPathSocket, "is not a socket file"},
		{"/dev/null", corev1.HostPathCharDev, ""},
		{"/dev/null", corev1.HostPathBlockDev, "is not a block device"},
		{at("file"), corev1.HostPathCharDev, "is not a character device"},
		{at("file"), corev1.HostPathDirectoryOrCreate, "is not a directory"},
		{dir, corev1.HostPathFileOrCreate, "is not a file"},
		{at("none/file"), corev1.HostPathFileOrCreate, "is not a file: no such file"},
		{at("file"), "Pipe", `"Pipe" is an invalid volume type`},
		{at("magic/etc"), corev1.HostPathUnset, "a link of /proc"},
		{at("magic/etc/x"), corev1.HostPathDirectoryOrCreate, "a link of /proc"},
		{at("loop"), corev1.HostPathDirectory, "a loop"},
		{"relative", corev1.HostPathUnset, "not an absolute path"},
		{dir + "/../x", corev1.HostPathUnset, "must not contain '..'"},
	}
	for _, test := range tests {
		t.Run(string(test.kind)+" "+filepath.Base(test.path), func(t *testing.T) {
			got, err := publish(t, test.path, test.kind)
			switch {
			case test.err == "" && (err != nil || got != test.path):
				t.Errorf("got %s, %v", got, err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("got %v, want an error with %q", err, test.err)
			}
		})
	}
}

func TestPublishMakesWhatTheTypeSays(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		name string
		kind corev1.HostPathType
		mode os.FileMode
	}{
		{"a/b", corev1.HostPathDirectoryOrCreate, os.ModeDir | 0o755},
		{"a/file", corev1.HostPathFileOrCreate, 0o644},
	} {
		path := filepath.Join(dir, test.name)
		for range 2 {
			if got, err := publish(t, path+"/", test.kind); err != nil || got != path {
				t.Fatalf("%s: %s, %v", test.kind, got, err)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != test.mode {
			t.Errorf("%s: %v, %v, want mode %v", test.kind, info, err, test.mode)
		}
	}
}
