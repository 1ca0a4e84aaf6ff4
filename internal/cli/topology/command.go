package topology

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
)

// Options are what the command shares with all others.
type Options struct {
	Client func() *client.Client
	// Usage adds the way out to the error of a wrong number of arguments.
	Usage func(cobra.PositionalArgs) cobra.PositionalArgs
	// Format adds the flag -o to a command. What it returns writes a result as the
	// flag says, and tells whether it has.
	Format func(*cobra.Command) func(w io.Writer, result any) (bool, error)
}

// Command returns the command.
func Command(o Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Draw the machine: sockets, NUMA nodes, caches, cores, and which pod holds what",
		Long: `Draw the machine the agent runs on. Each core is a cell with a sign for each of its CPUs (threads):

  .   shared by all containers that have no CPUs of their own
  #   reserved: never given to a container alone
  a   held by the container, or the pod, of that letter below

What is alike is folded: "4 x L3 32 MiB ... all shared" are four caches and the cores around them.
0-22:2 is every second CPU from 0 to 22. Caches below the last level come first, alike ones together.`,
		Example: "  berth topology\n  berth topology -o json",
		Args:    o.Usage(cobra.NoArgs),
	}
	write := o.Format(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		t, err := client.Topology(cmd.Context(), o.Client())
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
