package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/stream"
)

type execFlags struct {
	scope
	stream.Flags
	container string
}

func execCommand(a *app) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:     "exec POD [-c CONTAINER] [-i] [-t] -- COMMAND...",
		Short:   "Run a command in a container and return its exit code",
		Example: "  berth exec web -it -- /bin/sh",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.exec(cmd, &f, args) },
	}
	f.scope.add(cmd)
	f.Flags.Add(cmd)
	cmd.Flags().StringVarP(&f.container, "container", "c", "", "`container` (default: the pod's default container, or its first)")
	cmd.ValidArgsFunction = a.completePod(&f.scope)
	mark(cmd.RegisterFlagCompletionFunc("container", a.completeContainer(&f.scope)))
	return cmd
}

func (a *app) exec(cmd *cobra.Command, f *execFlags, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return client.Next(errors.New("expected one pod, --, and a command"), "usage: "+cmd.UseLine())
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
		container = stream.DefaultContainer(cmd.ErrOrStderr(), p)
	}
	streams, restore, err := f.Open(cmd)
	if err != nil {
		return err
	}
	err = c.Container(key, container).Exec(cmd.Context(), args[1:], f.TTY, streams)
	restore()
	return exited(err)
}

// exited turns the exit code of a container's process into an exitError, which ends this program with that
// code.
func exited(err error) error {
	if exit, ok := errors.AsType[*client.ExitError](err); ok {
		return &exitError{code: exit.Code}
	}
	return err
}
