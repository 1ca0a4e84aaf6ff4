package container

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/stream"
	"github.com/berth-run/berth/internal/model/pod"
)

func attachCommand(a *command.App) *cobra.Command {
	var f processFlags
	cmd := &cobra.Command{
		Use:   "attach POD [-c CONTAINER] [-i] [-t]",
		Short: "Connect to the main process of a running container",
		Long: `Show the new output of a container's main process. With -i, pass standard input to the process; its
manifest must have stdin: true. If standard input ends, so does this command. With stdinOnce: true, the
process's input ends then instead, and the command shows its output until the process ends.
If the manifest has tty: true, the command connects this terminal to the container's.

Interrupting this command leaves the container running.`,
		Example: "  berth attach shell -it",
		Args:    command.Usage(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return attach(a, cmd, &f, args[0]) },
	}
	f.add(a, cmd)
	return cmd
}

func attach(a *command.App, cmd *cobra.Command, f *processFlags, arg string) error {
	key, err := f.Pod(arg)
	if err != nil {
		return err
	}
	c := a.Client()
	p, err := c.Pod(key).Get(cmd.Context())
	if err != nil {
		return err
	}
	name := f.container
	if name == "" {
		name = stream.DefaultContainer(cmd.ErrOrStderr(), p)
	}
	spec, ok := pod.FindContainer(p, name) // if it does not exist, the agent returns an error
	tty := ok && spec.TTY
	if f.TTY && ok && !tty {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: container %s has no terminal: its manifest does not say tty: true\n",
			name)
	}
	once := ok && spec.StdinOnce
	return attachTo(cmd, c.Pod(key).Container(name), !once, stream.Flags{Stdin: f.Stdin, TTY: tty})
}

// attachTo connects the command's streams to a container. With detach, it returns when the input has ended.
func attachTo(cmd *cobra.Command, c client.Container, detach bool, f stream.Flags) error {
	streams, restore, err := f.Open(cmd)
	if err != nil {
		return err
	}
	defer restore()
	return command.Exited(c.Attach(cmd.Context(), f.TTY, detach, streams))
}
