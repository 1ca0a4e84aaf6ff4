package unixsocket

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxPath is the size of sun_path without its final zero (unix(7)).
const MaxPath = 107

// Path is a short name for the path of a socket, until it is closed.
type Path struct {
	// Short leads to the socket in this process.
	Short string
	dir   *os.File
}

// At returns a short name for a path. The directory must exist.
func At(path string) (*Path, error) {
	if len(path) <= MaxPath {
		return &Path{Short: path}, nil
	}
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the directory of a socket: %w", err)
	}
	return &Path{Short: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), dir: dir}, nil
}

// Close ends the validity of the short name.
func (p *Path) Close() {
	if p.dir != nil {
		p.dir.Close()
	}
}

// Dial connects to the socket at a path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	at, err := At(path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return (&net.Dialer{}).DialContext(ctx, "unix", at.Short)
}

// DialTarget connects to a target of gRPC, unix:///path. It is a dialer for grpc.WithContextDialer.
func DialTarget(ctx context.Context, target string) (net.Conn, error) {
	return Dial(ctx, strings.TrimPrefix(strings.TrimPrefix(target, "unix:"), "//"))
}

// Listen makes a socket at a path. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	at, err := At(path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at.Short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // the short name may be another file by then
	return &listener{UnixListener: l, path: path}, nil
}

type listener struct {
	*net.UnixListener
	path string
}

func (l *listener) Close() error {
	_ = os.Remove(l.path) // the next listener replaces a socket that stays
	return l.UnixListener.Close()
}
