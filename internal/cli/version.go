package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/command"
)

func versionCommand() *cobra.Command {
	var out command.Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the versions of this program and its components",
		Example: "  berth version -o json",
		Args:    command.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := api.BuildVersion()
			if out.Structured() {
				return out.Object(cmd.OutOrStdout(), v)
			}
			commit := cmp.Or(v.Commit, "unknown")
			if v.Modified {
				commit += " (modified)"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(),
				"berth %s\ncommit %s\ncontainerd %s\nrunc %s\nkubernetes behaviour %s\n%s\n",
				v.Version, commit, cmp.Or(v.Containerd, "unknown"), v.Runc, v.Kubernetes, v.Go)
			return err
		},
	}
	out.Add(cmd, "json", "yaml")
	return cmd
}
