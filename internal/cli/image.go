package cli

import (
	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/image"
)

func imageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Short:   "List, pull, load, save and remove images",
		Example: "  berth image load web.tar",
		Args:    command.Usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ls := getImagesCommand(a, "ls")
	ls.Aliases = []string{"list"}
	cmd.AddCommand(ls)
	cmd.AddCommand(image.Commands(&a.App)...)
	return cmd
}
