package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-run/berth/internal/client"
)

type execFlags struct {
	scope
	container string
	stdin     bool
	tty       bool
}

func execCommand(a *app) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:     "exec POD [-c CONTAINER] [-i] [-t] -- COMMAND...",
		Short:   "Run a command in a container; its exit code is the exit status",
		Example: "  berth exec web -it -- /bin/sh",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.exec(cmd, &f, args) },
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&f.container, "container", "c", "", "`container`; default: the pod's default or first one")
	cmd.Flags().BoolVarP(&f.stdin, "stdin", "i", false, "pass standard input to the command")
	cmd.Flags().BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	cmd.ValidArgsFunction = a.completePod(&f.scope)
	mark(cmd.RegisterFlagCompletionFunc("container", a.completeContainer(&f.scope)))
	return cmd
}

func (a *app) exec(cmd *cobra.Command, f *execFlags, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return client.Next(errors.New("want one pod, --, and a command"), "usage: "+cmd.UseLine())
	}
	key, err := f.pod(args[0])
	if err != nil {
		return err
	}
	c := a.client()
	container := f.container
	if container == "" {
		p, err := c.Pod(cmd.Context(), key)
		if err != nil {
			return err
		}
		container = defaultContainer(cmd.ErrOrStderr(), p)
	}
	streams := client.Streams{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
	if f.stdin {
		streams.In = cmd.InOrStdin()
	}
	tty, restore, err := f.terminal(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), &streams)
	if err != nil {
		return err
	}
	err = c.Exec(cmd.Context(), key, container, args[1:], tty, streams)
	restore()
	if exit, ok := errors.AsType[*client.ExitError](err); ok {
		return &exitError{code: exit.Code}
	}
	return err
}

// terminal makes the user's terminal raw and reports its sizes. restore puts it
// back. Without a terminal at standard input the command gets one all the same,
// of no particular size.
func (f *execFlags) terminal(ctx context.Context, stdin io.Reader, stderr io.Writer, streams *client.Streams) (tty bool, restore func(), err error) {
	if !f.tty {
		return false, func() {}, nil
	}
	in, ok := stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || !f.stdin {
		if f.stdin {
			fmt.Fprintln(stderr, "warning: standard input is not a terminal")
		}
		return true, func() {}, nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return false, nil, fmt.Errorf("make terminal raw: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	streams.Sizes = newSizes(ctx, in)
	return true, func() {
		cancel()
		_ = term.Restore(int(in.Fd()), state) // nothing else can be done about it
	}, nil
}

// sizes follows the size of a terminal.
type sizes struct {
	ctx     context.Context
	file    *os.File
	changed chan os.Signal
}

func newSizes(ctx context.Context, f *os.File) *sizes {
	s := &sizes{ctx: ctx, file: f, changed: make(chan os.Signal, 1)}
	s.changed <- unix.SIGWINCH // the size it has now is the first
	signal.Notify(s.changed, unix.SIGWINCH)
	return s
}

// Next waits for a change; nil ends the stream.
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
