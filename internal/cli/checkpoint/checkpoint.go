package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/stream"
)

// Commands returns the commands.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{checkpointCommand(a), restoreCommand(a)}
}

func checkpointCommand(a *command.App) *cobra.Command {
	var (
		s               command.Scope
		container, file string
	)
	cmd := &cobra.Command{
		Use:   "checkpoint POD [-c CONTAINER] [-o FILE]",
		Short: "Write the state of a running container into an archive for berth restore",
		Long: `Write the state of a running container into an archive: the memory of its processes, the files that it
has changed, and the pod. The container runs on. Files in volumes are not part of the archive.

This needs the program CRIU on the machine (Debian's package criu). A container with open TCP
connections cannot be checkpointed. Whoever reads the archive can read the memory of the container, with
all passwords in it. The file has mode 0600.`,
		Example: "  berth checkpoint web -o web.tar",
		Args:    command.Usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := s.Pod(args[0])
			if err != nil {
				return err
			}
			pod := a.Client().Pod(key)
			found, err := pod.Get(cmd.Context())
			if err != nil {
				return err
			}
			if container == "" {
				container = stream.DefaultContainer(cmd.ErrOrStderr(), found)
			}
			if file == "" {
				file = key.Name + ".checkpoint.tar"
			}
			if err := save(cmd.Context(), pod.Container(container), origin{container, found}, file); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
			return err
		},
	}
	s.Add(cmd)
	cmd.Flags().StringVarP(&container, "container", "c", "",
		"`container` (default: the pod's default container, or its first)")
	cmd.Flags().StringVarP(&file, "output", "o", "",
		"`file` to write, which appears when it is complete (default POD.checkpoint.tar)")
	command.Mark(cmd.MarkFlagFilename("output", "tar"))
	command.Mark(cmd.RegisterFlagCompletionFunc("container", a.CompleteContainer(&s)))
	cmd.ValidArgsFunction = a.CompletePod(&s)
	return cmd
}

// save writes a checkpoint of a container to a file. The file appears only when it is complete.
func save(ctx context.Context, c client.Container, from origin, file string) (err error) {
	const mode = 0o600
	part := file + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return client.Next(err,
			"wait for the other command that writes there, or remove the file of one that was killed")
	}
	if err != nil {
		return client.Next(err, "give -o a path that can be written")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	reader, writer := io.Pipe()
	var both errgroup.Group
	both.Go(func() error {
		err := c.Checkpoint(ctx, writer)
		_ = writer.CloseWithError(err) // it always returns nil
		return err
	})
	both.Go(func() error {
		err := pack(f, from, reader)
		_ = reader.CloseWithError(err) // as above
		return err
	})
	if err := errors.Join(both.Wait(), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, file)
}
