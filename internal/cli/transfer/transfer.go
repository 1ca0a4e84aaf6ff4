package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
)

// Agent transfers images of the agent that Client connects to. If Err is a terminal, it shows the progress.
type Agent struct {
	Client *client.Client
	Err    io.Writer
}

// Load sends an image archive from a file, or from stdin for "-", and returns the loaded images.
func (a Agent) Load(ctx context.Context, name string, stdin io.Reader) ([]api.Image, error) {
	from := &reader{Reader: stdin, meter: meter{line: newLine(a.Err), what: "loading"}}
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil,
				client.Next(fmt.Errorf("load image: %w", err), "give the path of a tar file, or - for standard input")
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil {
			from.total = st.Size()
		}
		from.Reader = f
	}
	defer from.line.wipe()
	return a.Client.Images().Load(ctx, from)
}

// Pull asks the agent to pull an image and returns it.
func (a Agent) Pull(ctx context.Context, name string) ([]api.Image, error) {
	l := newLine(a.Err)
	defer l.wipe()
	image, err := a.Client.Images().Pull(ctx, name, func(p api.Pull) { l.show(Text(p)) })
	if err != nil {
		return nil, err
	}
	return []api.Image{*image}, nil
}

// Remove removes images one after the other and returns the removed ones.
func (a Agent) Remove(ctx context.Context, names []string, force bool) (gone []api.Image, err error) {
	for _, name := range names {
		removed, e := a.Client.Images().Remove(ctx, name, force)
		gone, err = append(gone, removed...), errors.Join(err, e)
	}
	return gone, err
}

// Save writes images as an archive to a file, or to stdout for "-". The file appears only when it is
// complete.
func (a Agent) Save(ctx context.Context, names []string, file string, stdout io.Writer) (err error) {
	if file == "-" {
		if f, ok := stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return client.Next(errors.New("refusing to write an archive to a terminal"),
				"set -o FILE, or redirect the output")
		}
		return a.Client.Images().Save(ctx, names, stdout)
	}
	const mode = 0o644
	part := file + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("save images: %w", err)
	}
	to := &writer{Writer: f, meter: meter{line: newLine(a.Err), what: "saving"}}
	err = a.Client.Images().Save(ctx, names, to)
	to.line.wipe()
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, file)
}
