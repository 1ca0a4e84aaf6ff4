package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
)

func describeCommand(a *app) *cobra.Command {
	var s command.Scope
	run := func(cmd *cobra.Command, name string) error {
		key, err := s.Pod(name)
		if err != nil {
			return err
		}
		c := a.Client()
		p, err := c.Pod(key).Get(cmd.Context())
		if err != nil {
			return err
		}
		events, err := c.Events(cmd.Context(),
			client.Select{Namespace: key.Namespace,
				Fields: eventsOf(key.Name) + ",involvedObject.uid=" + string(p.UID)})
		if err != nil {
			return err
		}
		return printer.DescribePod(cmd.OutOrStdout(), p, events.Items, time.Now())
	}
	cmd := &cobra.Command{
		Use:     "describe pod NAME",
		Short:   "Show all details of a pod, with its events",
		Example: "  berth describe pod web",
		Args:    command.Usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := command.PodArgument(args)
			if err != nil {
				return err
			}
			return run(cmd, name)
		},
	}
	s.Add(cmd)
	cmd.ValidArgsFunction = a.CompleteTyped(&s)
	return cmd
}
