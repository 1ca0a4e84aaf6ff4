package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
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
	// DropInDir is where logind looks for more configuration, logind.conf(5).
	DropInDir = "/etc/systemd/logind.conf.d"
	// dropIn is the kubelet's name: a node that changes between the two has one.
	dropIn = "99-kubelet.conf"
)

// logind is systemd-logind on one connection.
type logind struct{ bus *dbus.Conn }

func (l logind) manager() dbus.BusObject { return l.bus.Object(logindName, logindPath) }

// subscribe gives the signals that say whether a shutdown is prepared. The channel
// is closed with the connection.
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

// preparing says what a signal tells; ok is false when it is not one of ours.
func preparing(s *dbus.Signal) (down, ok bool) {
	if s == nil || s.Name != logindManager+"."+prepare || len(s.Body) == 0 {
		return false, false
	}
	down, ok = s.Body[0].(bool)
	return down, ok
}

// inhibit delays shutdowns of the machine until the file is closed, for as long as
// logind allows.
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

// isPreparing says whether a shutdown has begun already.
func (l logind) isPreparing() (bool, error) {
	v, err := l.property("PreparingForShutdown")
	if err != nil {
		return false, err
	}
	down, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("read PreparingForShutdown of logind: it is %s, not a boolean", v.Signature())
	}
	return down, nil
}

// maxDelay is how long logind lets an inhibitor delay a shutdown.
func (l logind) maxDelay() (time.Duration, error) {
	v, err := l.property("InhibitDelayMaxUSec")
	if err != nil {
		return 0, err
	}
	us, ok := v.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("read InhibitDelayMaxUSec of logind: it is %s, not a number", v.Signature())
	}
	return time.Duration(min(us, uint64(24*time.Hour/time.Microsecond))) * time.Microsecond, nil
}

// allow makes logind wait for at least that long, by a drop-in and a reload.
func (l logind) allow(ctx context.Context, delay time.Duration, dir string) error {
	now, err := l.maxDelay()
	if err != nil || now >= delay {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make drop-in of logind: %w", err)
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
	for wait := 100 * time.Millisecond; wait <= 1600*time.Millisecond; wait *= 2 { // it answers before it has reloaded
		if now, err = l.maxDelay(); err != nil || now >= delay {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	return &shortError{now, delay}
}

// shortError is a logind that does not wait as long as the configuration asks.
type shortError struct{ has, wants time.Duration }

func (e *shortError) Error() string {
	return fmt.Sprintf("logind waits %s before a shutdown, the pods are given %s: set InhibitDelayMaxSec in %s", e.has,
		e.wants, DropInDir)
}

var errDisconnected = errors.New("the connection to D-Bus has ended")
