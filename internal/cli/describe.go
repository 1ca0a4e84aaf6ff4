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
		c := a.RootClient()
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
		Use:   "describe pod NAME|node",
		Short: "Show all details of a pod or of the node, with its events",
		Long: `Show all details of a pod, with its events. "berth describe node" shows the node: its conditions, and
each signal of eviction with its distance from the thresholds and its trend.`,
		Example: "  berth describe pod web\n  berth describe node",
		Args:    command.Usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "node" || args[0] == "nodes") {
				return a.describeNode(cmd)
			}
			name, err := command.PodArgument(args)
			if err != nil {
				return err
			}
			return run(cmd, name)
		},
	}
	s.Add(cmd)
	cmd.ValidArgsFunction = a.CompleteTyped(&s, false, "pod", "node")
	return cmd
}

// describeNode needs an agent: nothing on disk has the state of the node.
func (a *app) describeNode(cmd *cobra.Command) error {
	c := a.Client()
	status, err := c.Status(cmd.Context())
	if err != nil {
		return err
	}
	pressure, err := client.Pressure(cmd.Context(), c, false)
	if err != nil {
		return err
	}
	events, err := c.Events(cmd.Context(),
		client.Select{Fields: "involvedObject.kind=Node,involvedObject.name=" + status.Node})
	if err != nil {
		return err
	}
	return printer.DescribeNode(cmd.OutOrStdout(), status, pressure, events.Items, time.Now())
}
