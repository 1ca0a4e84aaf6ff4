package topology

import (
	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
)

// Command returns "berth topology".
func Command(a *command.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Draw the machine's sockets, NUMA nodes, caches and cores, and which pods hold them",
		Long: `Draw the machine that the agent runs on. Each core is a cell with one sign for each of its CPUs
(threads):

  .   shared by all containers without exclusive CPUs
  #   reserved: never assigned exclusively to a container
  a   held by the container or pod with this letter in the list below

Equal parts are folded: "4 x L3 32 MiB ... all shared" stands for four caches with the cores around
them. 0-22:2 is every second CPU from 0 to 22. Caches below the last level come first, equal ones
together.`,
		Example: "  berth topology\n  berth topology -o json",
		Args:    command.Usage(cobra.NoArgs),
	}
	write := command.FormatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		t, err := client.Topology(cmd.Context(), a.RootClient())
		if err != nil {
			return err
		}
		if done, err := write(cmd.OutOrStdout(), t); done || err != nil {
			return err
		}
		return Draw(cmd.OutOrStdout(), t)
	}
	return cmd
}
