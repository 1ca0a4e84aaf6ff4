package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// terminal runs berth on a terminal of its own. What it shows goes to the
// file "screen".
func (h *harness) terminal(ts *testscript.TestScript, args []string) {
	onTerminal(ts, args[0], exec.Command(h.bin, append([]string{"--root-dir", rootOf(ts)}, args[1:]...)...))
}

// onTerminal runs a command on a terminal of a size such as 80x24.
func onTerminal(ts *testscript.TestScript, columnsRows string, cmd *exec.Cmd) {
	var size unix.Winsize
	_, err := fmt.Sscanf(columnsRows, "%dx%d", &size.Col, &size.Row)
	ts.Check(err)
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
		if errors.Is(err, unix.EIO) || errors.Is(err, io.EOF) { // nobody has it open any more
			break
		}
		ts.Check(err)
		size.Col, size.Row = size.Col+1, size.Row+1
		ts.Check(unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &size))
	}
	ts.Check(os.WriteFile(ts.MkAbs("screen"), screen.Bytes(), 0o644))
	ts.Check(cmd.Wait())
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
