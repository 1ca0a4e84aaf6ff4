package shutdown

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" ` +
	`"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=%s</listen><policy context="default"><allow user="*"/><allow own="*"/>
<allow send_destination="*" eavesdrop="true"/><allow receive_sender="*"/></policy></busconfig>`

// bus is a D-Bus daemon for the test.
type bus struct {
	t            *testing.T
	config, path string
	daemon       *exec.Cmd
}

func newBus(t *testing.T) *bus {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("this machine has no dbus-daemon")
	}
	dir := t.TempDir()
	b := &bus{t: t, config: filepath.Join(dir, "bus.conf"), path: filepath.Join(dir, "bus")}
	if err := os.WriteFile(b.config, fmt.Appendf(nil, busConfig, b.path), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *bus) start() {
	b.t.Helper()
	b.daemon = exec.Command("dbus-daemon", "--config-file="+b.config, "--nofork", "--nopidfile", "--print-address")
	b.daemon.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := b.daemon.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.daemon.Start(); err != nil {
		b.t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // then it is listening
		b.t.Fatal("dbus-daemon:", err)
	}
}

func (b *bus) stop() {
	_ = b.daemon.Process.Kill()
	_ = b.daemon.Wait()
	_ = os.Remove(b.path)
}

func (b *bus) connect(ctx context.Context) (*dbus.Conn, error) {
	return dbus.Connect("unix:path="+b.path, dbus.WithContext(ctx))
}

// login plays logind, and systemd for reloading it.
type login struct {
	conn      *dbus.Conn
	inhibited chan inhibitor
	dropIn    string
	mu        sync.Mutex
	delay     time.Duration
	preparing bool
	deaf      bool // ignores reloads
}

// inhibitor is the test's side of an inhibitor: both ends of its pipe.
type inhibitor struct {
	read  *os.File
	write int // a bare descriptor, because D-Bus sends it later
}

// forget closes the test's copy of the write end, once the manager has its own.
func (i inhibitor) forget() { _ = unix.Close(i.write) }

// released waits until the manager has closed its end.
func (i inhibitor) released(t *testing.T) {
	t.Helper()
	if err := i.read.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := i.read.Read(make([]byte, 1)); n != 0 || err == nil || err.Error() != "EOF" {
		t.Errorf("the inhibitor was not released: %v", err)
	}
}

// held reports whether the manager still holds its end.
func (i inhibitor) held(t *testing.T) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(i.read.Fd()), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(i.read.Fd()), true); err != nil { // Fd has set it to blocking
		t.Fatal(err)
	}
	return fds[0].Revents&unix.POLLHUP == 0
}

func (b *bus) login(delay time.Duration, preparing bool) *login {
	b.t.Helper()
	conn, err := b.connect(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	l := &login{conn: conn, inhibited: make(chan inhibitor, 4), delay: delay, preparing: preparing,
		dropIn: filepath.Join(b.t.TempDir(), "logind.conf.d")}
	for _, export := range []struct {
		v         any
		path, of  string
		wellKnown string
	}{
		{manager{l}, logindPath, logindManager, logindName},
		{properties{l}, logindPath, "org.freedesktop.DBus.Properties", ""},
		{systemd{l}, systemdPath, systemdManager, systemdName},
	} {
		if err := conn.Export(export.v, dbus.ObjectPath(export.path), export.of); err != nil {
			b.t.Fatal(err)
		}
		if export.wellKnown == "" {
			continue
		}
		if _, err := conn.RequestName(export.wellKnown, dbus.NameFlagDoNotQueue); err != nil {
			b.t.Fatal(err)
		}
	}
	return l
}

// prepare sends the signal PrepareForShutdown.
func (l *login) prepare(t *testing.T, down bool) {
	t.Helper()
	if err := l.conn.Emit(logindPath, logindManager+"."+prepare, down); err != nil {
		t.Fatal(err)
	}
}

type manager struct{ *login }

func (m manager) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || mode != "delay" {
		return 0, dbus.MakeFailedError(fmt.Errorf("%s %s %s %s", what, who, why, mode))
	}
	ends := make([]int, 2)
	if err := unix.Pipe2(ends, unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	m.inhibited <- inhibitor{os.NewFile(uintptr(ends[0]), "inhibitor"), ends[1]}
	return dbus.UnixFD(ends[1]), nil
}

type properties struct{ *login }

func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "PreparingForShutdown" {
		return dbus.MakeVariant(p.preparing), nil
	}
	return dbus.MakeVariant(uint64(p.delay / time.Microsecond)), nil
}

type systemd struct{ *login }

// KillUnit reads the drop-in as logind does on a reload.
func (s systemd) KillUnit(unit, who string, signal int32) *dbus.Error {
	if unit != "systemd-logind.service" || who != "all" || unix.Signal(signal) != unix.SIGHUP {
		return dbus.MakeFailedError(fmt.Errorf("%s %s %d", unit, who, signal))
	}
	text, err := os.ReadFile(filepath.Join(s.dropIn, "99-kubelet.conf"))
	if err != nil {
		return dbus.MakeFailedError(err)
	}
	var seconds int
	_, value, _ := strings.Cut(string(text), "InhibitDelayMaxSec=")
	if _, err := fmt.Sscan(value, &seconds); err != nil {
		return dbus.MakeFailedError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deaf {
		s.delay = time.Duration(seconds) * time.Second
	}
	return nil
}
