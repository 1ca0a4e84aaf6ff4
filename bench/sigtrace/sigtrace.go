package sigtrace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
)

// Trace is a trace of one signal to the processes of one name.
type Trace struct {
	root     string // a mount of tracefs
	instance string
}

// mark is the text that Mark writes into the trace.
const mark = "berth-bench-begin"

// Start traces the signal to processes with the name comm, which has at most 15 bytes. End the trace with Close.
func Start(signal unix.Signal, comm string) (t *Trace, err error) {
	root, err := os.MkdirTemp("", "btrace")
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("tracefs", root, "tracefs", 0, ""); err != nil {
		err = fmt.Errorf("mount tracefs, which shows when a signal was sent: %w", err)
		return nil, errors.Join(err, os.Remove(root))
	}
	t = &Trace{root: root, instance: filepath.Join(root, "instances", fmt.Sprintf("berth-bench-%d", os.Getpid()))}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if err := os.Mkdir(t.instance, 0o700); err != nil {
		return nil, err
	}
	filter := fmt.Sprintf("sig == %d && comm == %q", signal, comm)
	for _, f := range [][2]string{
		{"trace_clock", "mono"}, // the default differs between CPUs
		{"events/signal/signal_generate/filter", filter},
		{"events/signal/signal_generate/enable", "1"},
	} {
		if err := t.write(f[0], f[1]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Trace) write(name, text string) error {
	return os.WriteFile(filepath.Join(t.instance, name), []byte(text), 0)
}

// Mark sets the moment from which Sent counts.
func (t *Trace) Mark() error { return t.write("trace_marker", mark) }

// line is a line of the trace: its time in seconds with six decimals, and its event.
var line = regexp.MustCompile(`(?m)^.* (\d+\.\d{6}): (signal_generate|tracing_mark_write): (.*)$`)

// Sent returns when the signals were sent, in the order of their times since Mark.
func (t *Trace) Sent() ([]time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(t.instance, "trace"))
	if err != nil {
		return nil, err
	}
	return parse(string(text))
}

func parse(text string) (sent []time.Duration, err error) {
	begin, marked := time.Duration(0), false
	for _, fields := range line.FindAllStringSubmatch(text, -1) {
		at, err := time.ParseDuration(fields[1] + "s")
		switch {
		case err != nil:
			return nil, err
		case fields[3] == mark:
			begin, marked, sent = at, true, nil
		case fields[2] == "signal_generate":
			sent = append(sent, at-begin)
		}
	}
	if !marked {
		return nil, errors.New("the trace has lost its begin: its buffer is too small")
	}
	return sent, nil
}

// Close ends the trace.
func (t *Trace) Close() error {
	err := os.Remove(t.instance)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, unix.Unmount(t.root, 0), os.Remove(t.root))
}
