package dockertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// patience limits how long a program may take until it is ready, and until it has ended.
const patience = time.Minute

// process is a running program.
type process struct {
	*os.Process
	ended chan struct{} // closed when it has ended
}

// launch starts a program and waits until it is ready. The program notifies as it notifies systemd (sd_notify(3)).
func (d *Daemon) launch(ctx context.Context, program string, args ...string) (*process, error) {
	socket := d.at("notify")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: socket})
	if err != nil {
		return nil, err
	}
	defer func() { _ = notify.Close() }() // it is only read
	log, err := os.OpenFile(d.at("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket,
		"PATH="+filepath.Dir(d.opts.Program)+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // an interrupt at a terminal is for the test alone
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd.Process, make(chan struct{})}
	unblock := func() { _ = notify.SetReadDeadline(time.Unix(1, 0)) }
	go func() {
		_ = cmd.Wait() // the log has the reason
		unblock()
		close(p.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(ctx, unblock)()
	for message := make([]byte, 4096); ; {
		n, err := notify.Read(message)
		if err != nil {
			err = errors.Join(context.Cause(ctx), err, p.stop(unix.SIGKILL))
			return nil, fmt.Errorf("start %s: not ready: %w; its log: %s", filepath.Base(program), err, d.Log())
		}
		if bytes.Contains(message[:n], []byte("READY=1")) {
			return p, nil
		}
	}
}

// stop ends a process with a signal and waits for its end.
func (p *process) stop(signal unix.Signal) error {
	if p == nil {
		return nil
	}
	if err := p.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		_ = p.Kill()
		<-p.ended
		return fmt.Errorf("stop process %d: it still ran %s after %s", p.Process.Pid, patience, signal)
	}
}
