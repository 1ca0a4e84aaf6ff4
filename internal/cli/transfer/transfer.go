package transfer

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/progress"
	"github.com/berth-run/berth/internal/cli/terminal"
)

// Agent transfers images of the agent that Client connects to. If Err is a terminal, it shows the progress.
type Agent struct {
	Client *client.Client
	Err    io.Writer
}

// Load sends an image archive from a file, or from stdin for "-", and returns the loaded images.
func (a Agent) Load(ctx context.Context, name string, stdin io.Reader) ([]api.Image, error) {
	state := progress.State{What: "loading", Rest: "the agent unpacks it"}
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil,
				client.Next(err, "give the path of a tar file, or - for standard input")
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil {
			state.Total = st.Size()
		}
		state.What += " " + filepath.Base(name)
		from = f
	}
	bar := progress.New(a.Err, state)
	defer bar.End()
	return a.Client.Images().Load(ctx, bar.Reader(from))
}

// Pull asks the agent to pull an image and returns it.
func (a Agent) Pull(ctx context.Context, name string) ([]api.Image, error) {
	bar := progress.New(a.Err, progress.State{})
	defer bar.End()
	image, err := a.Client.Images().Pull(ctx, name, func(p api.Pull) { bar.Set(State(p)) })
	if err != nil {
		if client.NextStep(err) == "" {
			err = client.Next(err,
				"check the name, the registry and its credentials, or load an archive with \"berth image load\"")
		}
		return nil, err
	}
	return []api.Image{*image}, nil
}

// State returns the progress of a pull.
func State(p api.Pull) progress.State {
	return progress.State{What: "pulling " + p.Name, Done: p.Fetched, Total: p.Total, PerSecond: float64(p.PerSecond),
		Elapsed: time.Duration(p.Elapsed * float64(time.Second)), Waiting: p.Waiting, Silent: p.Stalled,
		Rest: "the agent unpacks it"}
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
		if terminal.Of(stdout).Terminal {
			return client.Next(errors.New("refusing to write an archive to a terminal"),
				"set -o FILE, or redirect the output")
		}
		return a.save(ctx, names, "images", stdout)
	}
	const mode = 0o644
	part := file + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return client.Next(err, "give -o a path that can be written, or - for standard output")
	}
	err = a.save(ctx, names, filepath.Base(file), f)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, file)
}

// save writes images as an archive. The progress names it what.
func (a Agent) save(ctx context.Context, names []string, what string, archive io.Writer) error {
	bar := progress.New(a.Err, progress.State{What: "saving " + what})
	defer bar.End()
	if bar.Shown() {
		bar.Total(a.size(ctx, names))
	}
	return a.Client.Images().Save(ctx, names, bar.Writer(archive))
}

// size returns how large an archive with these images will be, about: layers that several of them share count once for
// each. It is 0 if an image is unknown. The save itself reports that.
func (a Agent) size(ctx context.Context, names []string) (bytes int64) {
	images, err := a.Client.Images().List(ctx)
	if err != nil {
		return 0
	}
	for _, name := range names {
		at := slices.IndexFunc(images, func(i api.Image) bool {
			return i.ID == name || slices.ContainsFunc(slices.Concat(i.Tags, i.Digests), func(full string) bool {
				return full == name || strings.HasSuffix(full, "/"+name)
			})
		})
		if at < 0 {
			return 0
		}
		bytes += int64(images[at].Size)
	}
	return bytes
}
