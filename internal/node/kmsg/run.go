package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/record/event"
)

// Device is the kernel's log device.
const Device = "/dev/kmsg"

// recordSize is the maximum size of a record (CONSOLE_EXT_LOG_MAX).
const recordSize = 8192

// systemOOM is the kubelet's event reason.
const systemOOM = "SystemOOM"

// Options of a Log. All are required.
type Options struct {
	// Path of the log, usually Device.
	Path string
	// Node is the object of the events.
	Node   corev1.ObjectReference
	Pods   Pods
	Events event.Sink
	// Statuses publishes pods whose status has changed.
	Statuses statuses
	Log      *slog.Logger
}

type statuses interface{ Mark(types.UID) }

// Pods finds the owners of cgroups.
type Pods interface {
	// Owner returns the owner of a cgroup of a pod, or of a cgroup within. It returns nil if that is no pod's.
	Owner(cgroup string) *Owner
}

// Log follows the kernel's log.
type Log struct {
	o     Options
	kills *prometheus.CounterVec

	mu     sync.Mutex
	causes causes
}

// New returns a Log that has read nothing.
func New(o Options) *Log {
	return &Log{o: o, causes: causes{texts: map[string]string{}},
		kills: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_oom_kills_total", Help: "Processes that the kernel killed, by whose memory ran out"},
			[]string{"scope"})}
}

// Cause says whose memory ran out when the kernel killed a process of a container, by the container's ID. It is empty
// if that is not known.
func (l *Log) Cause(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.causes.texts[id]
}

// Register registers the series.
func (l *Log) Register(r prometheus.Registerer) error { return r.Register(l.kills) }

// Run follows the log from its end until ctx ends. If the log cannot be read, for example without CAP_SYSLOG, Run logs
// this once and waits for ctx.
func (l *Log) Run(ctx context.Context) error {
	log, err := open(l.o.Path)
	if err == nil {
		defer context.AfterFunc(ctx, func() { _ = log.Close() })() // this ends a blocked read
		err = l.follow(log)
		_ = log.Close()
	}
	if ctx.Err() == nil {
		l.o.Log.Info(
			"cannot read the kernel's log, not reporting processes that it kills for lack of memory", "err",
			err)
		<-ctx.Done()
	}
	return ctx.Err()
}

// open opens a log at its end. A read waits for the next record without blocking a thread.
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

// follow reads records, one with each call, until a read fails.
func (l *Log) follow(log io.Reader) error {
	buffer := make([]byte, recordSize)
	var p parser
	for {
		n, err := log.Read(buffer)
		if errors.Is(err, unix.EPIPE) {
			continue // the record was overwritten before it was read: continue with the next one
		}
		if err != nil {
			return fmt.Errorf("read the kernel's log: %w", err)
		}
		text, ok := message(string(buffer[:n]))
		if !ok {
			continue
		}
		if k, ok := parseKill(text); ok {
			l.report(k)
		}
		if v, ok := p.next(text); ok {
			l.o.Events.Event(l.o.Node, corev1.EventTypeWarning, systemOOM,
				"System OOM encountered, victim process: %s, pid: %d", v.process, v.pid)
		}
	}
}

// report counts a killed process, and records an event of its pod.
func (l *Log) report(k kill) {
	victim := l.o.Pods.Owner(k.cgroup)
	var limited *Owner
	if k.limited != "" {
		limited = l.o.Pods.Owner(k.limited)
	}
	scope, ok := k.scope(limited, victim != nil)
	if !ok {
		return
	}
	l.kills.WithLabelValues(string(scope)).Inc()
	if victim != nil {
		l.o.Events.Event(event.PodRef(victim.Pod), corev1.EventTypeWarning, reason.OOMKilled,
			"process %s (pid %d) of container %s was killed: %s", k.process, k.pid, victim.Container,
			scope.because(limited))
	}
	if victim != nil && victim.ID != "" {
		l.mu.Lock()
		l.causes.add(victim.ID, scope.because(limited))
		l.mu.Unlock()
		l.o.Statuses.Mark(victim.Pod.UID)
	}
}
