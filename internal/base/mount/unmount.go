package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// At is what is mounted on exactly that path, last; nil for nothing. It goes by
// the mount table and asks no file system.
func At(path string) (*mountinfo.Info, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // not of path: that would ask what is mounted there
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	path = filepath.Join(dir, filepath.Base(path))
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != path, false })
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	if len(mounts) == 0 {
		return nil, nil
	}
	return mounts[len(mounts)-1], nil
}

// Remote unmounts file systems of servers, which may not answer.
type Remote struct {
	Runner Runner
	// Patience is how long each way of unmounting may take: the plain one, which
	// writes back what is dirty; with force, which fails what waits for the server;
	// and detached. 0 is ten seconds.
	Patience time.Duration
}

// Unmount unmounts path, whatever its server does: it takes at most three times
// Patience. nothing mounted there is no error. lost says that the server has not
// answered, so that what was not written back is lost. A mount in use of a
// process is EBUSY.
func (u Remote) Unmount(ctx context.Context, path string) (lost bool, err error) {
	patience := u.Patience
	if patience == 0 {
		patience = 10 * time.Second
	}
	for _, flags := range []int{0, unix.MNT_FORCE, unix.MNT_DETACH} {
		at, mountErr := At(path)
		if at == nil || mountErr != nil {
			return lost, mountErr
		}
		try, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer in %s", patience))
		err = u.Runner.Unmount(try, path, flags)
		slow := try.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return lost, err
		case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			continue // look whether another is below it
		case slow:
			lost = true
		default:
			return lost, err
		}
	}
	at, mountErr := At(path)
	if at != nil {
		return lost, errors.Join(err, fmt.Errorf("unmount %s: it is still mounted", path))
	}
	return lost, mountErr
}
