package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/progress"
	"github.com/berth-run/berth/internal/cli/stream"
)

type copyFlags struct {
	command.Scope
	container string
}

func copyCommand(a *command.App) *cobra.Command {
	var f copyFlags
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET [-c CONTAINER]",
		Short: "Copy files between this machine and a running container",
		Long: `Copy a file, or a directory with its content. Either SOURCE or TARGET is POD:PATH or NAMESPACE/POD:PATH.
PATH is the path that the container's processes see, and may be in a volume. If TARGET is a directory,
the copy goes into it.

The image does not need to contain tar. Symbolic links in a directory are copied as links. A link out of
the directory is not copied from a container. Files keep their modes. They belong to the user of the
container's process, or to the user of this command.`,
		Example: "  berth cp web:/var/log/app.log .\n  berth cp ./conf web:/etc/app -c app",
		Args:    command.Usage(cobra.ExactArgs(2)),
		RunE:    func(cmd *cobra.Command, args []string) error { return copyFiles(a, cmd, &f, args[0], args[1]) },
	}
	f.Add(cmd)
	containerFlag(cmd, &f.container)
	cmd.ValidArgsFunction = a.CompletePlace(&f.Scope)
	command.Mark(cmd.RegisterFlagCompletionFunc("container", a.CompleteContainer(&f.Scope)))
	return cmd
}

// place is the source or the target of a copy.
type place struct {
	pod  *types.NamespacedName // nil for this machine
	path string
}

// parsePlace distinguishes POD:PATH from a local path, as kubectl does. A path is local if it has no colon,
// begins with a dot or a slash, or has more than one slash before the first colon.
func (f *copyFlags) parsePlace(text string) (place, error) {
	name, inside, remote := strings.Cut(text, ":")
	if !remote || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.Count(name, "/") > 1 {
		return place{path: text}, nil
	}
	key := types.NamespacedName{Namespace: f.Namespace, Name: name}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		key = types.NamespacedName{Namespace: namespace, Name: name}
	}
	if key.Name == "" || key.Namespace == "" || inside == "" {
		return place{}, client.Next(fmt.Errorf("%q is not a path in a pod", text), "write POD:PATH")
	}
	return place{&key, inside}, nil
}

func copyFiles(a *command.App, cmd *cobra.Command, f *copyFlags, from, to string) error {
	source, err := f.parsePlace(from)
	if err != nil {
		return err
	}
	target, err := f.parsePlace(to)
	if err != nil {
		return err
	}
	inside := source.pod
	if inside == nil {
		inside = target.pod
	}
	if (source.pod == nil) == (target.pod == nil) {
		return client.Next(errors.New("expected one path in a pod and one on this machine"),
			"write POD:PATH for the path in a pod and ./PATH for the other")
	}
	c, container := a.Client(), f.container
	if container == "" {
		p, err := c.Pod(*inside).Get(cmd.Context())
		if err != nil {
			return err
		}
		container = stream.DefaultContainer(cmd.ErrOrStderr(), p)
	}
	bar := progress.New(cmd.ErrOrStderr(), progress.State{What: "copying " + path.Base(filepath.ToSlash(source.path))})
	skipped, err := transfer(cmd.Context(), c.Pod(*inside).Container(container), source, target, bar)
	bar.End()
	warnSkipped(cmd, skipped)
	return err
}

// transfer copies from source to target. One of the two is in the container. It returns the files that were left out.
func transfer(ctx context.Context, c client.Container, source, target place, bar *progress.Bar) (skipped []string,
	err error) {
	if source.pod != nil {
		err = c.ReadFiles(ctx, source.path, func(r io.Reader) error {
			skipped, err = stream.Unpack(bar.Reader(r), target.path, path.Base(path.Clean("/"+source.path)), bar.Total)
			return err
		})
		return skipped, err
	}
	if bar.Shown() {
		bar.Total(stream.Size(ctx, source.path))
	}
	err = stream.Pack(ctx, source.path, func(r io.Reader) error {
		name, err := filepath.Abs(source.path)
		if err != nil {
			return err
		}
		skipped, err = c.WriteFiles(ctx, target.path, filepath.Base(name), bar.Reader(r))
		return err
	})
	return skipped, err
}

func warnSkipped(cmd *cobra.Command, skipped []string) {
	for _, line := range skipped {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: not copied:", line)
	}
}
