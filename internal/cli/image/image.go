package image

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/transfer"
)

// Options are what the commands share with all others.
type Options struct {
	Client func() *client.Client
	// Usage adds the way out to the error of a wrong number of arguments.
	Usage func(cobra.PositionalArgs) cobra.PositionalArgs
	// Format adds the flag -o to a command. What it returns writes a result as the
	// flag says, and tells whether it has.
	Format func(*cobra.Command) func(w io.Writer, result any) (bool, error)
}

// Commands returns the commands.
func Commands(o Options) []*cobra.Command {
	c := commands{o}
	return []*cobra.Command{c.load(), c.pull(), c.save(), c.remove(), c.prune(), c.df()}
}

type commands struct{ Options }

// with completes a command: run's result is shown by show, or whole with -o.
func with[T any](c commands, cmd *cobra.Command, run func(cmd *cobra.Command, args []string) (T, error),
	show func(io.Writer, T) error) *cobra.Command {
	write := c.Format(cmd)
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
	return &cobra.Command{Use: use, Short: short, Long: long, Example: "  berth image " + example, Args: c.Usage(args)}
}

func imageList(images []api.Image, err error) (api.ImageList, error) {
	return api.ImageList{TypeMeta: api.Type("ImageList"), Items: images}, err
}

// transfers moves images for a command.
func (c commands) transfers(cmd *cobra.Command) transfer.Agent {
	return transfer.Agent{Client: c.Client(), Err: cmd.ErrOrStderr()}
}

func (c commands) load() *cobra.Command {
	return with(c,
		c.command("load FILE|-", "Load an image archive: an OCI layout or what docker save writes, as a tar file",
			"Load the images of an archive: an OCI layout or what docker save writes, as a tar file, plain or "+
				"compressed.\n"+
				"What was loaded is not removed when the disk gets full, only by name or by \"berth image "+
				"prune --all\".", "load web.tar", cobra.ExactArgs(1)),
		func(cmd *cobra.Command, args []string) (api.ImageList, error) {
			return imageList(c.transfers(cmd).Load(cmd.Context(), args[0], cmd.InOrStdin()))
		}, printer.ImageNames("loaded"))
}

func (c commands) pull() *cobra.Command {
	return with(c,
		c.command("pull NAME", "Pull an image with the node's credentials",
			"Pull an image, with the credentials of the node: its docker configuration and credential "+
				"provider plugins.\n"+
				"The pulls of pods go first.", "pull registry.example.com/team/web:1", cobra.ExactArgs(1)),
		func(cmd *cobra.Command, args []string) (api.ImageList, error) {
			return imageList(c.transfers(cmd).Pull(cmd.Context(), args[0]))
		}, printer.ImageNames("pulled"))
}

func (c commands) save() *cobra.Command {
	var file string
	cmd := c.command("save NAME|ID ... -o FILE|-", "Save images as an archive that load takes, here and in docker", "",
		"save web:1 -o web.tar", cobra.MinimumNArgs(1))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.transfers(cmd).Save(cmd.Context(), args, file, cmd.OutOrStdout())
	}
	cmd.Flags().StringVarP(&file, "output", "o", "-",
		"`file` to write, which appears once it is complete; -: standard output")
	_ = cmd.MarkFlagFilename("output", "tar") // the flag is there
	return cmd
}

func (c commands) remove() *cobra.Command {
	var force bool
	cmd := with(c,
		c.command("rm NAME|ID ...", "Remove images, with all their names", "", "rm web:1", cobra.MinimumNArgs(1)),
		func(cmd *cobra.Command, args []string) (api.ImageList, error) {
			return imageList(c.transfers(cmd).Remove(cmd.Context(), args, force))
		}, printer.ImageNames("removed"))
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also when it is in use: its containers go on")
	return cmd
}

func (c commands) prune() *cobra.Command {
	var all bool
	cmd := with(c,
		c.command("prune", "Remove the images that nobody uses",
			"Remove the images that no container has and no pod of the node names. Images that are pinned in "+
				"the runtime\n"+
				"stay, and those that were loaded from archives unless --all is given.", "prune", cobra.NoArgs),
		func(cmd *cobra.Command, _ []string) (api.ImageList, error) {
			return imageList(c.Client().Images().Prune(cmd.Context(), all))
		}, printer.PrunedImages)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that were loaded from archives")
	return cmd
}

func (c commands) df() *cobra.Command {
	return with(c, c.command("df", "Show what images take of the disk", "", "df", cobra.NoArgs),
		func(cmd *cobra.Command, _ []string) (*api.ImageUsage, error) {
			return c.Client().Images().Usage(cmd.Context())
		}, printer.ImageUsage)
}
