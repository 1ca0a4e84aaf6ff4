package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/model/pod"
)

func restoreCommand(a *command.App) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "restore ARCHIVE [--name POD]",
		Short: "Run a pod whose container continues where berth checkpoint has found it",
		Long: `Run a pod from an archive of berth checkpoint. Its container continues with the memory and the files that
it had. The other containers of the pod start from their images. The pod stays until it is deleted, as
with berth apply. If its container ends and starts again, it starts from the checkpoint again.

This needs the program CRIU (Debian's package criu), the image of the container, and the volumes of the
pod. The processes get the rights that they had, whatever the pod says: restore no archive that you do
not trust. Remove the checkpoint with berth image rm when the pod is gone.`,
		Example: "  berth restore web.tar",
		Args:    command.Usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			restored, err := restore(cmd.Context(), a.Client(), args[0], name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pod/%s restored\n", restored.Name)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the `pod` (default: the name that it had)")
	return cmd
}

// restore loads a checkpoint as an image and applies its pod.
func restore(ctx context.Context, c *client.Client, file, name string) (key types.NamespacedName, err error) {
	node, err := c.Status(ctx)
	if err != nil {
		return key, err
	}
	if node.Runtime.Name == "docker" {
		return key, client.Next(errors.New("a Docker Engine starts no container from a checkpoint"),
			"restore it on a node with the embedded runtime")
	}
	f, err := os.Open(file)
	if err != nil {
		return key, client.Next(fmt.Errorf("read the archive: %w", err), giveArchive)
	}
	defer f.Close()
	from, err := unpackOrigin(f)
	if err != nil {
		return key, err
	}
	content, err := layerOf(f)
	if err != nil {
		return key, err
	}
	image := content.imageName(from.Pod.Name)
	p, err := from.restored(name, image)
	if err != nil {
		return key, err
	}
	key = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	switch _, err := c.Pod(key).Get(ctx); {
	case err == nil:
		return key, client.Next(fmt.Errorf("there is a pod %s already", pod.FullName(p)), "delete it, or give --name")
	case !apierrors.IsNotFound(err):
		return key, err
	}
	if err := load(ctx, c, content, image, from.Container); err != nil {
		err = fmt.Errorf("load the checkpoint: %w", err)
		if client.NextStep(err) == "" {
			err = client.Next(err, "see the agent's log for what the runtime says about this image")
		}
		return key, err
	}
	manifest, err := json.Marshal(p)
	if err != nil {
		return key, err
	}
	_, err = c.Apply(ctx, manifest, client.Apply{Origin: file})
	return key, err
}

// layerOf returns a file as a layer. It reads the file twice: its digest comes before its content.
func layerOf(f *os.File) (layer, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return layer{}, err
	}
	digester := digest.Canonical.Digester()
	size, err := io.Copy(digester.Hash(), f)
	if err != nil {
		return layer{}, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return layer{content: f, digest: digester.Digest(), size: size}, err
}

// load sends a checkpoint to the image store of the agent.
func load(ctx context.Context, c *client.Client, content layer, name, container string) error {
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := content.write(writer, name, container)
		_ = writer.CloseWithError(err) // it always returns nil
		written <- err
	}()
	_, err := c.Images().Load(ctx, reader)
	_ = reader.CloseWithError(errEnded) // as above
	if failed := <-written; err == nil && !errors.Is(failed, errEnded) {
		err = failed
	}
	return err
}

// errEnded is the error of the writer of an image whose reader has everything it needs.
var errEnded = errors.New("the agent has read the image")
