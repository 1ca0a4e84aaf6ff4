package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/berth-run/berth/internal/base/retry"
)

// Names of org.freedesktop.login1(5) and org.freedesktop.systemd1(5).
const (
	logindName    = "org.freedesktop.login1"
	logindPath    = "/org/freedesktop/login1"
	logindManager = "org.freedesktop.login1.Manager"
	prepare       = "PrepareForShutdown"

	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = "/org/freedesktop/systemd1"
	systemdManager = "org.freedesktop.systemd1.Manager"
)

const (
	// DropInDir is the directory of logind's additional configuration, logind.conf(5).
	DropInDir = "/etc/systemd/logind.conf.d"
	// dropIn is the kubelet's file name, so that a node that switches between kubelet and Berth has only one.
	dropIn = "99-kubelet.conf"
)

// logind talks to systemd-logind over one connection.
type logind struct{ bus *dbus.Conn }

func (l logind) manager() dbus.BusObject { return l.bus.Object(logindName, logindPath) }

// subscribe returns the signals that announce or cancel a shutdown. The channel is closed with the connection.
func (l logind) subscribe(ctx context.Context) (<-chan *dbus.Signal, error) {
	err := l.bus.AddMatchSignalContext(ctx,
		dbus.WithMatchSender(logindName), dbus.WithMatchInterface(logindManager), dbus.WithMatchMember(prepare),
		dbus.WithMatchObjectPath(logindPath))
	if err != nil {
		return nil, fmt.Errorf("watch logind: %w", err)
	}
	signals := make(chan *dbus.Signal, 16)
	l.bus.Signal(signals)
	return signals, nil
}

// preparing decodes a signal. ok is false if it is another signal.
func preparing(s *dbus.Signal) (down, ok bool) {
	if s == nil || s.Name != logindManager+"."+prepare || len(s.Body) == 0 {
		return false, false
	}
	down, ok = s.Body[0].(bool)
	return down, ok
}

// inhibit delays shutdowns of the machine until the file is closed, up to logind's limit.
func (l logind) inhibit(ctx context.Context) (*os.File, error) {
	var fd dbus.UnixFD
	err := l.manager().CallWithContext(ctx, logindManager+".Inhibit", 0,
		"shutdown", "berth", "Berth ends the pods of this node first", "delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("take the inhibitor of logind: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

func (l logind) property(name string) (dbus.Variant, error) {
	v, err := l.manager().GetProperty(logindManager + "." + name)
	if err != nil {
		return v, fmt.Errorf("read %s of logind: %w", name, err)
	}
	return v, nil
}

// isPreparing reports whether a shutdown has already begun.
func (l logind) isPreparing() (bool, error) {
	v, err := l.property("PreparingForShutdown")
	if err != nil {
		return false, err
	}
	down, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("read PreparingForShutdown of logind: its type is %s, not boolean", v.Signature())
	}
	return down, nil
}

// maxDelay returns how long logind lets an inhibitor delay a shutdown.
func (l logind) maxDelay() (time.Duration, error) {
	v, err := l.property("InhibitDelayMaxUSec")
	if err != nil {
		return 0, err
	}
	us, ok := v.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("read InhibitDelayMaxUSec of logind: its type is %s, not a number", v.Signature())
	}
	return time.Duration(min(us, uint64(24*time.Hour/time.Microsecond))) * time.Microsecond, nil
}

// allow makes logind wait at least delay, with a drop-in file and a reload.
func (l logind) allow(ctx context.Context, delay time.Duration, dir string) error {
	now, err := l.maxDelay()
	if err != nil || now >= delay {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the drop-in directory of logind: %w", err)
	}
	seconds := (delay + time.Second - 1) / time.Second
	text := fmt.Sprintf("# Pods are given this time before the machine goes down.\n[Login]\nInhibitDelayMaxSec=%d\n",
		seconds)
	if err := os.WriteFile(filepath.Join(dir, dropIn), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write drop-in of logind: %w", err)
	}
	const sighup = int32(1)
	err = l.bus.Object(systemdName, systemdPath).CallWithContext(ctx, systemdManager+".KillUnit", 0,
		"systemd-logind.service", "all", sighup).Err
	if err != nil {
		return fmt.Errorf("reload logind: %w", err)
	}
	delays := retry.Doubling(100*time.Millisecond, 1600*time.Millisecond)
	for range 5 { // logind answers before it has reloaded
		if now, err = l.maxDelay(); err != nil || now >= delay {
			return err
		}
		if err := retry.Sleep(ctx, delays.Step()); err != nil {
			return err
		}
	}
	return &shortError{now, delay}
}

// shortError means that logind does not wait as long as the configured groups need.
type shortError struct{ current, wanted time.Duration }

func (e *shortError) Error() string {
	return fmt.Sprintf("logind delays a shutdown by %s, but the pods need up to %s; next: set InhibitDelayMaxSec in %s",
		e.current,
		e.wanted, DropInDir)
}

var errDisconnected = errors.New("the D-Bus connection was closed")
