package stream

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-run/berth/internal/api/client"
)

// Flags say how a command's standard streams are connected to a container.
type Flags struct {
	// Stdin passes the command's standard input to the container. TTY gives the process in the container a
	// terminal.
	Stdin, TTY bool
}

// Add defines the flags.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.Stdin, "stdin", "i", false, "pass standard input to the container")
	cmd.Flags().BoolVarP(&f.TTY, "tty", "t", false, "connect this terminal to one in the container")
}

// Open returns the command's streams. With TTY, it switches the user's terminal to raw mode, and restore
// switches it back.
func (f Flags) Open(cmd *cobra.Command) (s client.Streams, restore func(), err error) {
	s = client.Streams{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
	if f.Stdin {
		s.In = cmd.InOrStdin()
	}
	restore, err = f.terminal(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), &s)
	return s, restore, err
}

// terminal switches the user's terminal to raw mode and reports its sizes. If standard input is not a
// terminal, the process in the container has a terminal all the same, without a size.
func (f Flags) terminal(ctx context.Context, stdin io.Reader, stderr io.Writer,
	streams *client.Streams) (restore func(), err error) {
	if !f.TTY {
		return func() {}, nil
	}
	in, ok := stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || !f.Stdin {
		if f.Stdin {
			fmt.Fprintln(stderr, "warning: standard input is not a terminal")
		}
		return func() {}, nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("make terminal raw: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	streams.Sizes = newSizes(ctx, in)
	return func() {
		cancel()
		_ = term.Restore(int(in.Fd()), state) // there is no way to recover
	}, nil
}

// sizes reports the sizes of a terminal.
type sizes struct {
	ctx     context.Context
	file    *os.File
	changed chan os.Signal
}

func newSizes(ctx context.Context, f *os.File) *sizes {
	s := &sizes{ctx: ctx, file: f, changed: make(chan os.Signal, 1)}
	s.changed <- unix.SIGWINCH // report the current size first
	signal.Notify(s.changed, unix.SIGWINCH)
	return s
}

// Next waits for the next size. It returns nil when the context has ended.
func (s *sizes) Next() *remotecommand.TerminalSize {
	for {
		select {
		case <-s.ctx.Done():
			signal.Stop(s.changed)
			return nil
		case <-s.changed:
		}
		if width, height, err := term.GetSize(int(s.file.Fd())); err == nil {
			return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
		}
	}
}
