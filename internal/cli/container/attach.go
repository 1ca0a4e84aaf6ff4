package container

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

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
manifest must have stdin: true. With stdinOnce: true, the process's input ends when this command ends.
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
	return attachTo(cmd, c, key, name, stream.Flags{Stdin: f.Stdin, TTY: tty})
}

func attachTo(cmd *cobra.Command, c *client.Client, key types.NamespacedName, container string, f stream.Flags) error {
	streams, restore, err := f.Open(cmd)
	if err != nil {
		return err
	}
	defer restore()
	return command.Exited(c.Pod(key).Container(container).Attach(cmd.Context(), f.TTY, streams))
}
