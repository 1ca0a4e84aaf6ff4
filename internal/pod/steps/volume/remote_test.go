package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/roottest"
)

// silent mounts a file system whose server never answers. Every access waits until answer is called, and fails then.
func silent(t *testing.T, dir string) (answer func()) {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no FUSE here")
	}
	if err != nil {
		t.Fatal(err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())
	if err := unix.Mount("test", dir, "fuse", 0, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	return func() { server.Close() }
}

// remoteKind is a Kind whose volume is on a server.
type remoteKind struct {
	Kind
	path string
}

func (remoteKind) Dir() string                                        { return "" }
func (remoteKind) Serves(*corev1.Volume) bool                         { return true }
func (remoteKind) Features(Request) Features                          { return Features{Remote: true} }
func (k remoteKind) Publish(context.Context, Request) (string, error) { return k.path, nil }
func (remoteKind) Unpublish(context.Context, string) error            { return nil }

func TestMountPathFailsWhileTheServerIsSilent(t *testing.T) {
	roottest.Need(t, "mounting")
	dir := t.TempDir()
	answer := silent(t, dir)
	p := &corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "data"}},
		Containers: []corev1.Container{{Name: "app",
			VolumeMounts: []corev1.VolumeMount{{Name: "data", SubPath: "part"}}}},
	}}
	p.UID = "u1"
	root := t.TempDir()
	v := New(Config{Root: root, Kinds: []Kind{remoteKind{path: dir}}})
	if err := v.setup(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	why := errors.New("the pod is to stop")
	for range 2 { // the second call finds the thread of the first
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := v.MountPath(ctx, p, "app", 0, "part")
			done <- err
		}()
		for v.remote.Len() == 0 { // until the thread has begun
			runtime.Gosched()
		}
		cancel(why)
		if err := <-done; !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	answer()
	unlock, err := v.remote.Lock(t.Context(), filepath.Join(root, "pods/u1", subPathsDir, "data/app/0"))
	if err != nil {
		t.Fatal(err)
	}
	unlock() // the thread has ended
	if _, err := os.Lstat(filepath.Join(root, "pods/u1", subPathsDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a bind mount was made for a pod that is gone: %v", err)
	}
	if _, err := v.MountPath(t.Context(), p, "app", 0, "part"); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("got %v from a server that is dead", err)
	}
}
