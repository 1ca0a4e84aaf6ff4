package image

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/transfer"
)

// Commands returns the subcommands of "berth image".
func Commands(a *command.App) []*cobra.Command {
	c := commands{a}
	return []*cobra.Command{c.load(), c.pull(), c.save(), c.remove(), c.prune(), c.df()}
}

type commands struct{ app *command.App }

// with sets the function of a command: it calls run and prints the result with show, or in the format of
// -o.
func with[T any](cmd *cobra.Command, run func(cmd *cobra.Command, args []string) (T, error),
	show func(io.Writer, T) error) *cobra.Command {
	write := command.FormatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		result, err := run(cmd, args)
		if err != nil {
			return err
		}
		if done, err := write(cmd.OutOrStdout(), result); done || err != nil {
			return err
		}
		return show(cmd.OutOrStdout(), result)
	}
	return cmd
}

func (c commands) command(use, short, long, example string, args cobra.PositionalArgs) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long, Example: "  berth image " + example,
		Args: command.Usage(args)}
}

func imageList(images []api.Image, err error) (api.ImageList, error) {
	return api.ImageList{TypeMeta: api.Type("ImageList"), Items: images}, err
}

// transfers returns the agent whose images a command transfers.
func (c commands) transfers(cmd *cobra.Command) transfer.Agent {
	return transfer.Agent{Client: c.app.RootClient(), Err: cmd.ErrOrStderr()}
}

func (c commands) load() *cobra.Command {
	return with(
		c.command("load FILE|-",
			"Load images from an archive: an OCI layout or the output of docker save, as a tar file",
			"Load images from an archive: an OCI layout or the output of docker save, as a tar file, plain or\n"+
				"compressed. Garbage collection does not remove loaded images. Remove them by name or with\n"+
				"\"berth image prune --all\".", "load web.tar", cobra.ExactArgs(1)),
		func(cmd *cobra.Command, args []string) (api.ImageList, error) {
			return imageList(c.transfers(cmd).Load(cmd.Context(), args[0], cmd.InOrStdin()))
		}, printer.ImageNames("loaded"))
}

func (c commands) pull() *cobra.Command {
	return with(
		c.command("pull NAME", "Pull an image with the node's credentials",
			"Pull an image with the node's credentials: its docker configuration and credential provider plugins.\n"+
				"Pulls for pods have precedence.", "pull registry.example.com/team/web:1", cobra.ExactArgs(1)),
		func(cmd *cobra.Command, args []string) (api.ImageList, error) {
			return imageList(c.transfers(cmd).Pull(cmd.Context(), args[0]))
		}, printer.ImageNames("pulled"))
}

func (c commands) save() *cobra.Command {
	var file string
	cmd := c.command("save NAME|ID ... -o FILE|-", "Save images as an archive for berth image load or docker load", "",
		"save web:1 -o web.tar", cobra.MinimumNArgs(1))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.transfers(cmd).Save(cmd.Context(), args, file, cmd.OutOrStdout())
	}
	cmd.Flags().StringVarP(&file, "output", "o", "-",
		"`file` to write, or - for standard output; the file appears when it is complete")
	_ = cmd.MarkFlagFilename("output", "tar") // the flag exists
	cmd.ValidArgsFunction = c.app.CompleteImage(true)
	return cmd
}

func (c commands) remove() *cobra.Command {
	var force bool
	cmd := with(
		c.command("rm NAME|ID ...", "Remove images, with all their names", "", "rm web:1", cobra.MinimumNArgs(1)),
		func(cmd *cobra.Command, args []string) (api.ImageList, error) {
			return imageList(c.transfers(cmd).Remove(cmd.Context(), args, force))
		}, printer.ImageNames("removed"))
	cmd.ValidArgsFunction = c.app.CompleteImage(true)
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also remove an image in use; its containers keep running")
	return cmd
}

func (c commands) prune() *cobra.Command {
	var all bool
	cmd := with(
		c.command("prune", "Remove unused images",
			"Remove the images that no container and no pod of the node uses. Pinned images of the runtime stay.\n"+
				"Images loaded from archives stay too, unless --all is set.", "prune", cobra.NoArgs),
		func(cmd *cobra.Command, _ []string) (api.ImageList, error) {
			return imageList(c.app.RootClient().Images().Prune(cmd.Context(), all))
		}, printer.PrunedImages)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also remove unused images that were loaded from archives")
	return cmd
}

func (c commands) df() *cobra.Command {
	return with(c.command("df", "Show the disk space that images use", "", "df", cobra.NoArgs),
		func(cmd *cobra.Command, _ []string) (*api.ImageUsage, error) {
			return c.app.RootClient().Images().Usage(cmd.Context())
		}, printer.ImageUsage)
}
