package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
)

func versionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the versions of this program and its components",
		Example: "  berth version -o json",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := api.BuildVersion()
			if out.structured() {
				return out.object(cmd.OutOrStdout(), v)
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
	out.add(cmd, "json", "yaml")
	return cmd
}
