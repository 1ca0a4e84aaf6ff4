package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// terminal runs berth on a terminal of its own. What it shows goes to the
// file "screen".
func (h *harness) terminal(ts *testscript.TestScript, args []string) {
	onTerminal(ts, args, func(args ...string) *exec.Cmd {
		return exec.Command(h.bin, append([]string{"--root-dir", rootOf(ts)}, args...)...)
	})
}

// dialog is what is typed at a terminal, and when.
type dialog []exchange

// exchange types a text once another one was shown.
type exchange struct{ shown, typed string }

// readDialog reads a file whose lines are what is shown, what is typed then, and
// so on. Enter follows what is typed, unless it is ^C or ^D.
func readDialog(text string) dialog {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var d dialog
	for pair := range slices.Chunk(lines, 2) {
		typed, isKey := map[string]string{"^C": "\x03", "^D": "\x04"}[pair[len(pair)-1]]
		if !isKey {
			typed = pair[len(pair)-1] + "\r"
		}
		d = append(d, exchange{pair[0], typed})
	}
	return d
}

// next is what is to be typed when the screen shows this, and what is left of the
// dialog.
func (d dialog) next(screen []byte) (typed string, rest dialog) {
	if len(d) == 0 || !bytes.Contains(screen, []byte(d[0].shown)) {
		return "", d
	}
	return d[0].typed, d[1:]
}

// over is an error unless everything was shown, and typed.
func (d dialog) over() error {
	if len(d) == 0 {
		return nil
	}
	return fmt.Errorf("%q was never shown", d[0].shown)
}

// onTerminal runs a command on a terminal. Its arguments are the terminal's size,
// a dialog, and those of the command.
func onTerminal(ts *testscript.TestScript, args []string, command func(args ...string) *exec.Cmd) {
	var size unix.Winsize
	_, err := fmt.Sscanf(args[0], "%dx%d", &size.Col, &size.Row)
	ts.Check(err)
	args = args[1:]
	var said dialog
	if args[0] == "-dialog" {
		said, args = readDialog(ts.ReadFile(args[1])), args[2:]
	}
	cmd := command(args...)
	master, slave, err := openTerminal()
	ts.Check(err)
	defer master.Close()
	ts.Check(unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &size))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: unix.SIGKILL}
	ts.Check(cmd.Start())
	ts.Check(slave.Close())
	var screen bytes.Buffer
	piece := make([]byte, 4096)
	for {
		n, err := master.Read(piece)
		screen.Write(piece[:n])
		var typed string
		typed, said = said.next(screen.Bytes())
		_, typeErr := io.WriteString(master, typed)
		ts.Check(typeErr)
		if errors.Is(err, unix.EIO) || errors.Is(err, io.EOF) { // nobody has it open any more
			break
		}
		ts.Check(err)
		size.Col, size.Row = size.Col+1, size.Row+1
		ts.Check(unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &size))
	}
	ts.Check(os.WriteFile(ts.MkAbs("screen"), screen.Bytes(), 0o644))
	if err := errors.Join(cmd.Wait(), said.over()); err != nil {
		ts.Fatalf("%q: %v; the terminal shows:\n%s", args, err, screen.Bytes())
	}
}

// openTerminal makes a pair of pseudo terminals, see pts(4).
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}
