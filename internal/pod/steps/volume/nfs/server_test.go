package nfs

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/mount"
)

// server is the kernel's NFS server on a loopback address, without the programs of nfs-utils.
type server struct {
	t      *testing.T
	dir    string // the exported directory, as "/"
	option string // port=...
}

func newServer(t *testing.T) *server {
	t.Helper()
	for _, name := range []string{"nfs", "nfs4", "nfsd"} {
		if has, err := mount.Kernel(name); err != nil || !has {
			t.Skipf("this kernel has no %s now (%v)", name, err)
		}
	}
	s := &server{t: t, dir: t.TempDir()}
	if err := os.Chmod(s.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if at, err := mount.At("/proc/fs/nfsd"); err != nil || at == nil {
		if err := unix.Mount("nfsd", "/proc/fs/nfsd", "nfsd", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount("/proc/fs/nfsd", 0) })
	}
	if n, err := os.ReadFile("/proc/fs/nfsd/threads"); err != nil || strings.TrimSpace(string(n)) != "0" {
		t.Skipf("somebody's NFS server runs here: %s threads (%v)", n, err)
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// start gives the kernel a socket and, for an hour, what its programs would
// answer: who the client is, and what it may have (rpc.mountd(8)).
func (s *server) start() {
	s.t.Helper()
	var config net.ListenConfig
	config.SetMultipathTCP(false) // the server refuses such a socket
	l, err := config.Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		s.t.Fatal(err)
	}
	defer socket.Close()
	s.option = fmt.Sprintf("port=%d", l.Addr().(*net.TCPAddr).Port)
	const insecurePort, async, noSubtreeCheck, isRoot = 0x2, 0x10, 0x400, 0x2000
	until := time.Now().Add(time.Hour).Unix()
	for _, w := range [][2]string{
		{"/proc/fs/nfsd/nfsv4leasetime", "10"},
		{"/proc/fs/nfsd/nfsv4gracetime", "10"}, // seconds during which no file can be opened
		{"/proc/fs/nfsd/versions", "-2 -3 +4 -4.0 +4.1 +4.2"},
		{"/proc/fs/nfsd/portlist", strconv.Itoa(int(socket.Fd()))},
		{"/proc/fs/nfsd/threads", "2"},
		{"/proc/net/rpc/auth.unix.ip/channel", fmt.Sprintf("nfsd 127.0.0.1 %d client", until)},
		{"/proc/net/rpc/nfsd.export/channel",
			fmt.Sprintf("client %s %d %d 65534 65534 0", s.dir, until, insecurePort|async|noSubtreeCheck|isRoot)},
		{"/proc/net/rpc/nfsd.fh/channel", fmt.Sprintf(`client 1 \x00000000 %d %s`, until, s.dir)},
	} {
		if err := os.WriteFile(w[0], []byte(w[1]+"\n"), 0); err != nil {
			s.t.Fatalf("%s: %v", w[1], err)
		}
	}
}

func (s *server) stop() {
	if err := os.WriteFile("/proc/fs/nfsd/threads", []byte("0\n"), 0); err != nil {
		s.t.Errorf("stop the server: %v", err)
	}
}

func TestMountReadWriteAndUnmount(t *testing.T) {
	s := newServer(t)
	k, r := Kind{}, request(t, "127.0.0.1", s.option, "noatime")
	r.Persistent.Spec.NFS.Path = "/"
	t.Cleanup(func() { _ = unix.Unmount(r.Target, unix.MNT_DETACH) })
	for range 2 { // the second call finds the mount
		if path, err := k.Publish(t.Context(), r); err != nil || path != r.Target {
			t.Fatalf("published %q, %v", path, err)
		}
	}
	at, err := mount.At(r.Target)
	if err != nil || at == nil || at.FSType != "nfs4" || at.Source != "127.0.0.1:/" ||
		!strings.Contains(at.VFSOptions, "vers=4.2") || !strings.Contains(at.Options, "noatime") {
		t.Errorf("mounted %+v, %v", at, err)
	}
	if err := os.WriteFile(filepath.Join(r.Target, "file"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(s.dir, "file")); string(text) != "kept" {
		t.Errorf("the server has %q, %v", text, err)
	}
	held, err := os.Open(filepath.Join(r.Target, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Unpublish(t.Context(), r.Target); !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), fmt.Sprintf("held by process %d", os.Getpid())) {
		t.Errorf("unmounted in use: %v", err)
	}
	held.Close()
	if err := k.Unpublish(t.Context(), r.Target); err != nil {
		t.Fatal(err)
	}

	r.Persistent.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	if _, err := k.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Target, "more"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("wrote: %v", err)
	}
	if err := k.Unpublish(t.Context(), r.Target); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(r.Target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is there still: %v", err)
	}

	r.Persistent.Spec.MountOptions = []string{s.option, "nfsvers=4.0"}
	if _, err := k.Publish(t.Context(), r); err == nil ||
		!strings.Contains(err.Error(), "does not support that NFS version") {
		t.Errorf("got %v", err)
	}
	r.Persistent.Spec.MountOptions = []string{s.option, "nosuchoption"}
	if _, err := k.Publish(t.Context(), r); err == nil ||
		!strings.Contains(err.Error(), "refuses the mount options") {
		t.Errorf("got %v", err)
	}
	r.Persistent.Spec.MountOptions = []string{s.option}
	r.Persistent.Spec.NFS.Path = "/none"
	if _, err := k.Publish(t.Context(), r); err == nil ||
		!strings.Contains(err.Error(), "the server has no such directory") {
		t.Errorf("got %v", err)
	}
}

// A server that goes away with writes pending delays neither the end of the pod nor the next mount, whose error says
// what is wrong.
func TestUnmountWithoutTheServer(t *testing.T) {
	s := newServer(t)
	k := Kind{Remote: mount.Remote{Patience: 5 * time.Second}, Log: slog.New(slog.DiscardHandler)}
	r := request(t, "127.0.0.1", s.option, "hard")
	r.Persistent.Spec.NFS.Path = "/"
	t.Cleanup(func() { _ = unix.Unmount(r.Target, unix.MNT_DETACH) })
	if _, err := k.Publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	dirty(t, filepath.Join(r.Target, "file"), s.stop)
	t.Cleanup(s.start) // the stop at the end and the kernel's pending writes need the server

	if path, err := k.Publish(t.Context(), r); err != nil || path != r.Target { // mounted already
		t.Errorf("published %q, %v", path, err)
	}
	began := time.Now()
	if err := k.Unpublish(t.Context(), r.Target); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if at, err := mount.At(r.Target); at != nil || err != nil {
		t.Errorf("mounted %+v, %v", at, err)
	}
	if _, err := k.Publish(t.Context(), r); err == nil ||
		!strings.Contains(err.Error(), "does not answer on TCP port") {
		t.Errorf("got %v", err)
	}
}

// dirty writes to a file through a mapping and calls stop before the page is written back. Closing the file would write
// it back.
func dirty(t *testing.T, name string, stop func()) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	page[0] = 1 // loads the page, so that the next write makes no request
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	stop()
	page[0] = 2
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
}
