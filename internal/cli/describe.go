package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/printer"
)

func describeCommand(a *app) *cobra.Command {
	var s scope
	run := func(cmd *cobra.Command, name string) error {
		key, err := s.pod(name)
		if err != nil {
			return err
		}
		c := a.client()
		p, err := c.Pod(cmd.Context(), key)
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
		Args:    usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := podArgument(args)
			if err != nil {
				return err
			}
			return run(cmd, name)
		},
	}
	s.add(cmd)
	cmd.ValidArgsFunction = a.completeTyped(&s)
	return cmd
}
