package cli

import (
	"fmt"

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
	cmd.AddCommand(imageLoadCommand(a), ls, imagePullCommand(a), imageSaveCommand(a), imageRemoveCommand(a), imagePruneCommand(a), imageUsageCommand(a))
	return cmd
}

func imageLoadCommand(a *app) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "load FILE|-",
		Short: "Load an image archive: an OCI layout or what docker save writes, as a tar file",
		Long: "Load the images of an archive: an OCI layout or what docker save writes, as a tar file, plain or compressed.\n" +
			"What was loaded is not removed when the disk gets full, only by name or by \"berth image prune --all\".",
		Example: "  berth image load web.tar",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			images, err := a.transfers(cmd).Load(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			return printImages(cmd, &out, "loaded", images)
		},
	}
	out.add(cmd, "json", "yaml")
	return cmd
}

// printImages says what happened to images, a line for each of their names.
func printImages(cmd *cobra.Command, out *output, what string, images []api.Image) error {
	if out.structured() {
		return out.object(cmd.OutOrStdout(), api.ImageList{TypeMeta: api.Type("ImageList"), Items: images})
	}
	for _, i := range images {
		names := i.Tags
		if len(names) == 0 {
			names = i.Digests
		}
		if len(names) == 0 {
			names = []string{i.ID}
		}
		for _, n := range names {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", what, n)
		}
	}
	return nil
}

// transfers moves images for a command.
func (a *app) transfers(cmd *cobra.Command) transfer.Agent {
	return transfer.Agent{Client: a.client(), Err: cmd.ErrOrStderr()}
}

func imagePullCommand(a *app) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "pull NAME",
		Short: "Pull an image with the node's credentials",
		Long: "Pull an image, with the credentials of the node: its docker configuration and credential provider plugins.\n" +
			"The pulls of pods go first.",
		Example: "  berth image pull registry.example.com/team/web:1",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			image, err := a.transfers(cmd).Pull(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printImages(cmd, &out, "pulled", []api.Image{*image})
		},
	}
	out.add(cmd, "json", "yaml")
	return cmd
}

func imageSaveCommand(a *app) *cobra.Command {
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

func imageRemoveCommand(a *app) *cobra.Command {
	var force bool
	var out output
	cmd := &cobra.Command{
		Use:     "rm NAME|ID ...",
		Aliases: []string{"remove"},
		Short:   "Remove images, with all their names",
		Example: "  berth image rm web:1",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				gone, err := a.client().Images().Remove(cmd.Context(), name, force)
				if err != nil {
					return err
				}
				if err := printImages(cmd, &out, "removed", gone); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also when it is in use: its containers go on")
	out.add(cmd, "json", "yaml")
	return cmd
}

func imagePruneCommand(a *app) *cobra.Command {
	var all bool
	var out output
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the images that nobody uses",
		Long: "Remove the images that no container has and no pod of the node names. Images that are pinned in the runtime\n" +
			"stay, and those that were loaded from archives unless --all is given.",
		Example: "  berth image prune",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			gone, err := a.client().Images().Prune(cmd.Context(), all)
			if err != nil {
				return err
			}
			if err := printImages(cmd, &out, "removed", gone); err != nil || out.structured() {
				return err
			}
			var size uint64
			for _, i := range gone {
				size += i.Size
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d images, %s\n", len(gone), printer.Bytes(size))
			return nil
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that were loaded from archives")
	out.add(cmd, "json", "yaml")
	return cmd
}

func imageUsageCommand(a *app) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "df",
		Short:   "Show what images take of the disk",
		Example: "  berth image df",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := a.client().Images().Usage(cmd.Context())
			if err != nil {
				return err
			}
			if out.structured() {
				return out.object(cmd.OutOrStdout(), u)
			}
			return printer.ImageUsage(cmd.OutOrStdout(), u)
		},
	}
	out.add(cmd, "json", "yaml")
	return cmd
}
