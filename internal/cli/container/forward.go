package container

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/stream"
)

type forwardFlags struct {
	command.Scope
	addresses []string
}

func forwardCommand(a *command.App) *cobra.Command {
	var f forwardFlags
	cmd := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]PORT...",
		Short: "Forward local ports to ports of a pod",
		Long: `Listen on local ports and pass each connection to a port of the pod, until interrupted. PORT is a number
or the name of a container's port. LOCAL is the local port: by default the same number, and any free
port if it is empty (:PORT) or 0. Ports that are open on the pod's loopback address only can be reached
too.`,
		Example: "  berth port-forward web 8080:http\n  berth port-forward web :80 --address 0.0.0.0",
		Args:    command.Usage(cobra.MinimumNArgs(2)),
		RunE:    func(cmd *cobra.Command, args []string) error { return forward(a, cmd, &f, args[0], args[1:]) },
	}
	f.Add(cmd)
	cmd.Flags().StringSliceVar(&f.addresses, "address", []string{"localhost"},
		"IP `addresses` to listen on; localhost is 127.0.0.1 and ::1")
	cmd.ValidArgsFunction = a.CompletePod(&f.Scope)
	return cmd
}

func forward(a *command.App, cmd *cobra.Command, f *forwardFlags, arg string, specs []string) error {
	key, err := f.Pod(arg)
	if err != nil {
		return err
	}
	c := a.Client()
	p, err := c.Pod(key).Get(cmd.Context())
	if err != nil {
		return err
	}
	ports := make([]string, len(specs))
	for i, spec := range specs {
		if ports[i], err = stream.Port(p, spec); err != nil {
			return client.Next(err, "write [LOCAL:]PORT, such as 8080:80")
		}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return c.Pod(key).PortForward(ctx,
		client.Forward{Addresses: f.addresses, Ports: ports, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
}
