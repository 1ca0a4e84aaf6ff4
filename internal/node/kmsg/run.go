package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Device is the kernel's log.
const Device = "/dev/kmsg"

// recordSize is the most that the kernel gives as one record (CONSOLE_EXT_LOG_MAX).
const recordSize = 8192

// systemOOM is the kubelet's reason.
const systemOOM = "SystemOOM"

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Options of a Log. All are required.
type Options struct {
	// Path of the log: Device.
	Path string
	// Node is what the events are about.
	Node   corev1.ObjectReference
	Events events
	Log    *slog.Logger
}

// Log follows the kernel's.
type Log struct{ o Options }

// New makes a Log. It reads nothing before Run.
func New(o Options) *Log { return &Log{o} }

// Run follows the log from its end until ctx ends. Where it cannot be read, as without
// CAP_SYSLOG, it says so and does nothing more.
func (l *Log) Run(ctx context.Context) error {
	log, err := open(l.o.Path)
	if err == nil {
		defer context.AfterFunc(ctx, func() { _ = log.Close() })() // which ends the read
		err = l.follow(log)
		_ = log.Close()
	}
	if ctx.Err() == nil {
		l.o.Log.Info("events do not tell of processes that are killed for want of memory of the machine", "err", err)
		<-ctx.Done()
	}
	return ctx.Err()
}

// open opens a log at its end. A read waits for the next record without a thread.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's log: %w", err)
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("seek to the end of the kernel's log: %w", err), f.Close())
	}
	return f, nil
}

// follow reads records, one with each call, until that fails.
func (l *Log) follow(log io.Reader) error {
	buffer := make([]byte, recordSize)
	var p parser
	for {
		n, err := log.Read(buffer)
		if errors.Is(err, unix.EPIPE) {
			continue // it was overwritten before it was read: the next one is there
		}
		if err != nil {
			return fmt.Errorf("read the kernel's log: %w", err)
		}
		text, ok := message(string(buffer[:n]))
		if !ok {
			continue
		}
		if v, ok := p.next(text); ok {
			l.o.Events.Event(l.o.Node, corev1.EventTypeWarning, systemOOM,
				"System OOM encountered, victim process: %s, pid: %d", v.process, v.pid)
		}
	}
}
