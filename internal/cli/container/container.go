package container

import (
	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/cli/command"
)

// Commands returns the commands.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{logsCommand(a), execCommand(a), attachCommand(a), copyCommand(a), forwardCommand(a),
		debugCommand(a)}
}

// containerFlag adds the flag --container.
func containerFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVarP(name, "container", "c", "",
		"`container` (default: the pod's default container, or its first)")
}
