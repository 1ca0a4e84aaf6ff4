package container

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/stream"
)

// processFlags choose a process in a container and the streams to connect to it.
type processFlags struct {
	command.Scope
	stream.Flags
	container string
}

// add adds the flags and their completions to a command.
func (f *processFlags) add(a *command.App, cmd *cobra.Command) {
	f.Scope.Add(cmd)
	f.Flags.Add(cmd)
	containerFlag(cmd, &f.container)
	cmd.ValidArgsFunction = a.CompletePod(&f.Scope)
	command.Mark(cmd.RegisterFlagCompletionFunc("container", a.CompleteContainer(&f.Scope)))
}

func execCommand(a *command.App) *cobra.Command {
	var f processFlags
	cmd := &cobra.Command{
		Use:     "exec POD [-c CONTAINER] [-i] [-t] -- COMMAND...",
		Short:   "Run a command in a container and return its exit code",
		Example: "  berth exec web -it -- /bin/sh",
		RunE:    func(cmd *cobra.Command, args []string) error { return exec(a, cmd, &f, args) },
	}
	f.add(a, cmd)
	return cmd
}

func exec(a *command.App, cmd *cobra.Command, f *processFlags, args []string) error {
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
