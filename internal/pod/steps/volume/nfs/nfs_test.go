package nfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// The test binary is also the child process that mounts.
func TestMain(m *testing.M) {
	if handled, code := mount.Main(os.Args, os.Stdin, os.Stdout); handled {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func request(t *testing.T, server string, options ...string) volume.Request {
	t.Helper()
	pv := &corev1.PersistentVolume{}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: server, Path: "/srv"}
	pv.Spec.MountOptions = options
	return volume.Request{Volume: &corev1.Volume{Name: "data"}, Persistent: pv,
		Target: filepath.Join(t.TempDir(), "data")}
}

// listener accepts the connection of the probe. It returns the mount option with its port.
func listener(t *testing.T) (port string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return fmt.Sprintf("port=%d", l.Addr().(*net.TCPAddr).Port)
}

func TestPublishFails(t *testing.T) {
	roottest.Need(t, "mounting")
	closed := func(t *testing.T) string { // a port without a listener
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		return fmt.Sprintf("port=%d", l.Addr().(*net.TCPAddr).Port)
	}
	tests := []struct {
		name, server string
		options      func(*testing.T) []string
		want         string
	}{
		{"nobody listens", "127.0.0.1", func(t *testing.T) []string {
			return []string{closed(t)}
		}, "the NFS server 127.0.0.1 does not answer on TCP port"},
		{"no such server", "no-such-server.invalid", func(*testing.T) []string {
			return nil
		}, "find the NFS server no-such-server.invalid"},
		{"no such version", "127.0.0.1", func(*testing.T) []string { return []string{"vers=9"} }, "NFS version 9"},
		{"no locks", "127.0.0.1", func(t *testing.T) []string {
			return []string{"vers=3", listener(t)}
		}, "needs rpc.statd"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path, err := Kind{Log: slog.New(slog.DiscardHandler)}.Publish(t.Context(),
				request(t, test.server, test.options(t)...))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q, %v, want %q", path, err, test.want)
			}
		})
	}
}

// Something listens on the port and never answers. Publish does not wait for the kernel's NFS client, if there is one.
func TestPublishGivesUpOnASilentServer(t *testing.T) {
	roottest.Need(t, "mounting")
	r := request(t, "127.0.0.1", listener(t), "vers=4.2")
	has, err := mount.Kernel("nfs")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = Kind{}.Publish(ctx, r)
	switch {
	case has &&
		(!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the kernel has not answered")):
		t.Errorf("got %v", err)
	case !has &&
		(!errors.Is(err, unix.ENODEV) ||
			!strings.Contains(err.Error(), "this kernel has no NFS client: load its module")):
		t.Errorf("got %v", err)
	}
	if err := (Kind{}).Unpublish(t.Context(), r.Target); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(r.Target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is there still: %v", err)
	}
}

// A pod that must stop does not wait for the kernel.
func TestPublishEndsWithItsContext(t *testing.T) {
	fifo, program := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "hang")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho >"+fifo+"\nexec /bin/sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := Kind{Remote: mount.Remote{Runner: mount.Runner{Program: program}}}
	r := request(t, "127.0.0.1", listener(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := k.Publish(ctx, r)
		done <- err
	}()
	if _, err := os.ReadFile(fifo); err != nil { // until the child has begun
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "mount 127.0.0.1:/srv on "+r.Target) {
		t.Errorf("got %v", err)
	}
}

func TestPublishKeepsAnExistingMount(t *testing.T) {
	roottest.Need(t, "mounting")
	r := request(t, "127.0.0.1")
	if err := os.Mkdir(r.Target, 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(r.Target, unix.MNT_DETACH) })
	if err := unix.Mount("test", r.Target, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := (Kind{}).Publish(t.Context(), r); err == nil ||
		!strings.Contains(err.Error(), "a tmpfs is mounted on") {
		t.Errorf("got %v", err)
	}
	held, err := os.Open(r.Target)
	if err != nil {
		t.Fatal(err)
	}
	if err := (Kind{}).Unpublish(t.Context(), r.Target); !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), fmt.Sprintf("held by process %d", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	held.Close()
	if err := (Kind{}).Unpublish(t.Context(), r.Target); err != nil {
		t.Error(err)
	}
}
