package container

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/stream"
)

type execFlags struct {
	command.Scope
	stream.Flags
	container string
}

func execCommand(a *command.App) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:     "exec POD [-c CONTAINER] [-i] [-t] -- COMMAND...",
		Short:   "Run a command in a container and return its exit code",
		Example: "  berth exec web -it -- /bin/sh",
		RunE:    func(cmd *cobra.Command, args []string) error { return exec(a, cmd, &f, args) },
	}
	f.Scope.Add(cmd)
	f.Flags.Add(cmd)
	containerFlag(cmd, &f.container)
	cmd.ValidArgsFunction = a.CompletePod(&f.Scope)
	command.Mark(cmd.RegisterFlagCompletionFunc("container", a.CompleteContainer(&f.Scope)))
	return cmd
}

func exec(a *command.App, cmd *cobra.Command, f *execFlags, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return client.Next(errors.New("expected one pod, --, and a command"), "usage: "+cmd.UseLine())
	}
	key, err := f.Pod(args[0])
	if err != nil {
		return err
	}
	c := a.Client()
	container := f.container
	if container == "" {
		p, err := c.Pod(key).Get(cmd.Context())
		if err != nil {
			return err
		}
		container = stream.DefaultContainer(cmd.ErrOrStderr(), p)
	}
	streams, restore, err := f.Open(cmd)
	if err != nil {
		return err
	}
	err = c.Pod(key).Container(container).Exec(cmd.Context(), args[1:], f.TTY, streams)
	restore()
	return command.Exited(err)
}
