package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/transfer"
	"github.com/berth-run/berth/internal/server/api"
)

func imageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Short:   "List, pull, load, save and remove images",
		Example: "  berth image load web.tar",
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ls := getImagesCommand(a, "ls")
	ls.Aliases = []string{"list"}
	cmd.AddCommand(a.imageLoad(), ls, a.imagePull(), a.imageSave(), a.imageRemove(), a.imagePrune(), a.imageUsage())
	return cmd
}

// with completes a command on images: run's result is shown by show, or whole
// with -o.
func with[T any](cmd *cobra.Command, run func(cmd *cobra.Command, args []string) (T, error), show func(io.Writer, T) error) *cobra.Command {
	var out output
	out.add(cmd, "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		result, err := run(cmd, args)
		switch {
		case err != nil:
			return err
		case out.structured():
			return out.object(cmd.OutOrStdout(), result)
		}
		return show(cmd.OutOrStdout(), result)
	}
	return cmd
}

func image(use, short, long, example string, args cobra.PositionalArgs) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long, Example: "  berth image " + example, Args: usage(args)}
}

func imageList(images []api.Image, err error) (api.ImageList, error) {
	return api.ImageList{TypeMeta: api.Type("ImageList"), Items: images}, err
}

// transfers moves images for a command.
func (a *app) transfers(cmd *cobra.Command) transfer.Agent {
	return transfer.Agent{Client: a.client(), Err: cmd.ErrOrStderr()}
}

func (a *app) imageLoad() *cobra.Command {
	return with(image("load FILE|-", "Load an image archive: an OCI layout or what docker save writes, as a tar file", "Load the images of an archive: an OCI layout or what docker save writes, as a tar file, plain or compressed.\n"+
		"What was loaded is not removed when the disk gets full, only by name or by \"berth image prune --all\".", "load web.tar", cobra.ExactArgs(1)), func(cmd *cobra.Command, args []string) (api.ImageList, error) {
		return imageList(a.transfers(cmd).Load(cmd.Context(), args[0], cmd.InOrStdin()))
	}, printer.ImageNames("loaded"))
}

func (a *app) imagePull() *cobra.Command {
	return with(image("pull NAME", "Pull an image with the node's credentials", "Pull an image, with the credentials of the node: its docker configuration and credential provider plugins.\n"+
		"The pulls of pods go first.", "pull registry.example.com/team/web:1", cobra.ExactArgs(1)), func(cmd *cobra.Command, args []string) (api.ImageList, error) {
		return imageList(a.transfers(cmd).Pull(cmd.Context(), args[0]))
	}, printer.ImageNames("pulled"))
}

func (a *app) imageSave() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "save NAME|ID ... -o FILE|-",
		Short:   "Save images as an archive that load takes, here and in docker",
		Example: "  berth image save web:1 -o web.tar",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.transfers(cmd).Save(cmd.Context(), args, file, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "-", "`file` to write, which appears once it is complete; -: standard output")
	mark(cmd.MarkFlagFilename("output", "tar"))
	return cmd
}

func (a *app) imageRemove() *cobra.Command {
	var force bool
	cmd := with(image("rm NAME|ID ...", "Remove images, with all their names", "", "rm web:1", cobra.MinimumNArgs(1)), func(cmd *cobra.Command, args []string) (api.ImageList, error) {
		return imageList(a.transfers(cmd).Remove(cmd.Context(), args, force))
	}, printer.ImageNames("removed"))
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also when it is in use: its containers go on")
	return cmd
}

func (a *app) imagePrune() *cobra.Command {
	var all bool
	cmd := with(image("prune", "Remove the images that nobody uses", "Remove the images that no container has and no pod of the node names. Images that are pinned in the runtime\n"+
		"stay, and those that were loaded from archives unless --all is given.", "prune", cobra.NoArgs), func(cmd *cobra.Command, _ []string) (api.ImageList, error) {
		return imageList(a.client().Images().Prune(cmd.Context(), all))
	}, printer.PrunedImages)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that were loaded from archives")
	return cmd
}

func (a *app) imageUsage() *cobra.Command {
	return with(image("df", "Show what images take of the disk", "", "df", cobra.NoArgs), func(cmd *cobra.Command, _ []string) (*api.ImageUsage, error) {
		return a.client().Images().Usage(cmd.Context())
	}, printer.ImageUsage)
}
