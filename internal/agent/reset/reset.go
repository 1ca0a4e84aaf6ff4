package reset

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/agent/former"
	"github.com/berth-run/berth/internal/agent/packetfilter"
	"github.com/berth-run/berth/internal/agent/rootdir"
	"github.com/berth-run/berth/internal/base/librarylog"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/config"
)

// Options of Run. All are required.
type Options struct {
	// Config is read with config.Flags.Apart: it names no cluster.
	Config *config.Config
	// Runtimes makes the container runtime that the configuration asks for.
	Runtimes engine.Kinds
	Log      *slog.Logger
}

// patience is how long a reset waits for the runtime to answer.
const patience = 30 * time.Second

// Run resets a root directory, at once and without grace. It fails while an agent works there, and no agent can start
// there until it has ended. After an error it continues with the rest, and returns all errors. If pods may be left, it
// deletes no files.
func Run(ctx context.Context, o Options) (err error) {
	librarylog.Forward(o.Log)
	root, err := rootdir.Open(o.Config.RootDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	unlock, err := lock.Root(ctx, root.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	current := cmp.Or(o.Config.Runtime.Endpoint, endpoint.Embedded)
	failed := errors.Join(former.End(ctx, former.Options(o), current), endPods(ctx, o),
		packetfilter.Firewall(o.Config, o.Log).Remove(ctx), packetfilter.Chains(o.Config, o.Log).Remove(ctx))
	run, err := rootdir.OpenRun(o.Config.RunDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return removeDirs(ctx, failed, root)
	case err != nil:
		return errors.Join(failed, err)
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	return removeDirs(ctx, failed, run, root)
}

// removeDirs unmounts everything below the directories of an agent. A directory that lies in another one comes before
// it, and the root directory is the last. If nothing has failed before, removeDirs deletes the directories and the
// root's sockets.
func removeDirs(ctx context.Context, failed error, dirs ...*rootdir.Dir) error {
	var unmounts, removals error
	for _, d := range dirs {
		unmounts = errors.Join(unmounts, d.Unmount())
	}
	if failed != nil {
		return errors.Join(failed, unmounts)
	}
	removals = unixsocket.RemoveDir(ctx, filepath.Join(dirs[len(dirs)-1].Path, "runtime"))
	for i, d := range dirs {
		if !slices.ContainsFunc(dirs[i+1:], d.Within) { // the outer directory goes with everything in it
			removals = errors.Join(removals, d.Remove(ctx))
		}
	}
	return errors.Join(unmounts, removals)
}
