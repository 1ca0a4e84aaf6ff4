package stock

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/runtime/assets"
	"github.com/berth-run/berth/test/containerd"
)

// Stock is a containerd with the floor that runs pods on it.
type Stock struct {
	Floor  *side.Floor
	daemon *containerd.Daemon
}

// Start starts a containerd on the directories of a side, with the image loaded. Its pause containers run the program
// of Berth's holders.
func Start(ctx context.Context, dirs side.Dirs) (*Stock, error) {
	if err := os.MkdirAll(dirs.Root, 0o755); err != nil {
		return nil, err
	}
	holder, err := assets.Holder()
	if err != nil {
		return nil, err
	}
	parts, err := containerd.Build(ctx, filepath.Join(dirs.Root, "parts"), "tools", side.Archive)
	if err == nil {
		parts, err = parts.WithPause(bytes.NewReader(holder), filepath.Join(dirs.Root, "pause.tar"))
	}
	if err != nil {
		return nil, err
	}
	daemon, err := containerd.New(ctx, containerd.Options{
		Parts: parts, Dir: filepath.Join(dirs.Root, "c"), State: dirs.Run, // a tmpfs, as below /run
		Bridge: "berth-bench2", Subnet: "10.205.3.0/24",
	})
	if err != nil {
		return nil, err
	}
	floor, err := side.FloorOn(dirs, "stock", daemon.Endpoint(), daemon.Pid())
	if err != nil {
		return nil, errors.Join(err, daemon.Close())
	}
	return &Stock{floor, daemon}, nil
}

// Close ends the containerd and removes everything of it from the machine.
func (s *Stock) Close() error { return errors.Join(s.daemon.Close(), s.Floor.Close()) }
