package unixsocket

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-run/berth/internal/base/roottest"
)

// long makes a directory whose path is too long for a socket.
func long(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 50))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSocketsLieInAnyDirectory(t *testing.T) {
	path := filepath.Join(long(t), "a.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Write([]byte("hello"))
			_ = c.Close()
		}
	}()
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"path":   func(ctx context.Context) (net.Conn, error) { return Dial(ctx, path) },
		"target": func(ctx context.Context) (net.Conn, error) { return DialTarget(ctx, "unix://"+path) },
	} {
		c, err := dial(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text, err := io.ReadAll(c); string(text) != "hello" || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		_ = c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is there: %v", err)
	}
}

// gRPC passes DialTarget the target that it was given.
func TestGRPCReachesALongPath(t *testing.T) {
	path := filepath.Join(long(t), "a.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithContextDialer(DialTarget),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	err = conn.Invoke(t.Context(), "/none/None", &emptypb.Empty{}, &emptypb.Empty{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want the server's answer", err)
	}
}

func TestDir(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "not/yet/made")
	if a, b := Dir(root), Dir(filepath.Join(link, "not/yet/made")); a != b {
		t.Errorf("a root has two directories: %s and %s", a, b)
	}
	if a, b := Dir(root), Dir(root+"2"); a == b || len(a)+len("/s/")+64 > MaxPath {
		t.Errorf("directories of two roots: %s and %s", a, b)
	}
}

func TestMakeDirThenSweep(t *testing.T) {
	roottest.Need(t, "making a directory in /run")
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := Dir(root)
	defer func() { _ = os.RemoveAll(dir) }()
	for range 2 {
		if _, err := MakeDir(root); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Lstat(dir); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	check := func(when string, want bool) {
		t.Helper()
		if err := Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(dir); (err == nil) != want {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("the root is there", true)
	l, err := Listen(filepath.Join(dir, "a.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	check("a process listens", true)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	check("nobody listens", false)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeDir(root); err == nil || !strings.Contains(err.Error(), "only user 0 can enter") {
		t.Errorf("a directory that others can enter: %v", err)
	}
}
