package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/runtime/assets"
	"github.com/berth-run/berth/test/containerd"
)

// Stock is a containerd with the floor that runs pods on it.
type Stock struct {
	Floor  *side.Floor
	daemon *containerd.Daemon
	state  string // a mount of a tmpfs, as an installed containerd has it
}

// Start starts a containerd on the directories of a side, with the image loaded. The program of its pause containers is
// that of Berth's holders.
func Start(ctx context.Context, dirs side.Dirs) (_ *Stock, err error) {
	dir := filepath.Join(dirs.Root, "c")
	s := &Stock{state: filepath.Join(dir, "state")}
	if err := errors.Join(os.MkdirAll(s.state, 0o755), os.MkdirAll(dirs.Run, 0o755)); err != nil {
		return nil, err
	}
	if err := unix.Mount(dirs.Run, s.state, "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("mount %s: %w", s.state, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
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
	s.daemon, err = containerd.New(ctx,
		containerd.Options{Parts: parts, Dir: dir, Bridge: "berth-bench2", Subnet: "10.205.3.0/24"})
	if err != nil {
		return nil, err
	}
	floor, err := side.FloorOn(dirs, "stock", s.daemon.Endpoint(), s.daemon.Pid())
	if err != nil {
		return nil, err
	}
	s.Floor = floor
	return s, nil
}

// Close ends the containerd and removes everything of it from the machine.
func (s *Stock) Close() (err error) {
	if s.daemon != nil {
		err = s.daemon.Stop(unix.SIGTERM)
	}
	err = errors.Join(err, unix.Unmount(s.state, 0))
	if s.daemon != nil {
		err = errors.Join(err, s.daemon.Close())
	}
	if s.Floor != nil {
		err = errors.Join(err, s.Floor.Close())
	}
	return err
}
