package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// terminal runs berth on a new terminal, and writes what the terminal showed to the file "screen". The terminal has
// colors, unless the script sets NO_COLOR. With -slow, the bytes to and from the agent trickle until the terminal shows
// their rate and the time left.
func (h *harness) terminal(ts *testscript.TestScript, args []string) {
	agent, shown := []string{"--root-dir", rootOf(ts)}, func([]byte) {}
	if args[1] == "-slow" {
		args = slices.Delete(slices.Clone(args), 1, 2)
		t := newThrottle(ts, filepath.Join(rootOf(ts), "berth.sock"))
		defer t.close()
		agent, shown = append(agent, "--socket", t.path), t.shown
	}
	onTerminal(ts, args, shown, func(args ...string) *exec.Cmd {
		cmd := exec.Command(h.bin, append(agent, args...)...)
		cmd.Dir = ts.MkAbs(".")
		cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR="+ts.Getenv("NO_COLOR"))
		return cmd
	})
}

// dialog is the input to type at a terminal, in order.
type dialog []exchange

// exchange types a text as soon as the terminal has shown another one.
type exchange struct{ shown, typed string }

// readDialog reads a file whose lines alternate: a text to wait for, then the input to type. Enter follows every
// input but ^C and ^D.
func readDialog(text string) dialog {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var d dialog
	for pair := range slices.Chunk(lines, 2) {
		input := pair[len(pair)-1]
		typed, isKey := map[string]string{"^C": "\x03", "^D": "\x04"}[input]
		if !isKey {
			typed = input + "\r"
		}
		d = append(d, exchange{pair[0], typed})
	}
	return d
}

// next returns the input to type now that the terminal has shown this screen, or "", and the rest of the dialog.
func (d dialog) next(screen []byte) (typed string, rest dialog) {
	if len(d) == 0 || !bytes.Contains(screen, []byte(d[0].shown)) {
		return "", d
	}
	return d[0].typed, d[1:]
}

// finished returns an error unless every text was shown and every input was typed.
func (d dialog) finished() error {
	if len(d) == 0 {
		return nil
	}
	return fmt.Errorf("the terminal never showed %q", d[0].shown)
}

// silence is how long a terminal waits for output before it grows without it. A containerd outside the agent resizes
// the terminal of an attach before it connects the output, so that what the container prints in between never comes.
const silence = 2 * time.Second

// onTerminal runs a command on a new terminal, and ends it when patience is over. args has the terminal's size, an
// optional dialog, and the arguments of the command. It calls shown with all that the terminal has shown, each time.
func onTerminal(ts *testscript.TestScript, args []string, shown func(screen []byte),
	command func(args ...string) *exec.Cmd) {
	var size unix.Winsize
	_, err := fmt.Sscanf(args[0], "%dx%d", &size.Col, &size.Row)
	ts.Check(err)
	args = args[1:]
	var pending dialog
	if args[0] == "-dialog" {
		pending, args = readDialog(ts.ReadFile(args[1])), args[2:]
	}
	cmd := command(args...)
	master, slave, err := openTerminal()
	ts.Check(err)
	defer master.Close()
	ts.Check(resize(master, size))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: unix.SIGKILL}
	ts.Check(cmd.Start())
	ts.Check(slave.Close())
	var screen bytes.Buffer
	piece := make([]byte, 4096)
	for end := time.Now().Add(patience); ; {
		ts.Check(master.SetReadDeadline(time.Now().Add(silence)))
		n, err := master.Read(piece)
		screen.Write(piece[:n])
		shown(screen.Bytes())
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if time.Now().After(end) {
				ts.Check(cmd.Process.Kill())
				_ = cmd.Wait() // the error says that the signal ended it
				fail(ts, "%q has not ended; the terminal shows:\n%s", args, screen.Bytes())
			}
			err = nil
		}
		var typed string
		typed, pending = pending.next(screen.Bytes())
		_, typeErr := io.WriteString(master, typed)
		ts.Check(typeErr)
		if errors.Is(err, unix.EIO) || errors.Is(err, io.EOF) { // no process has the terminal open any more
			break
		}
		ts.Check(err)
		size.Col, size.Row = size.Col+1, size.Row+1
		ts.Check(resize(master, size))
	}
	ts.Check(os.WriteFile(ts.MkAbs("screen"), screen.Bytes(), 0o644))
	if err := errors.Join(cmd.Wait(), pending.finished()); err != nil {
		ts.Fatalf("%q: %v; the terminal shows:\n%s", args, err, screen.Bytes())
	}
}

// openTerminal opens a new pseudo terminal, see pts(4).
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	var n int
	err = control(master, func(fd int) (err error) {
		if n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// resize sets the size of a terminal.
func resize(master *os.File, size unix.Winsize) error {
	return control(master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) })
}

// control acts on the descriptor of a file. After a call of (*os.File).Fd, the deadlines of the file would have no
// effect.
func control(f *os.File, action func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = action(int(fd)) })
	return errors.Join(err, failed)
}
