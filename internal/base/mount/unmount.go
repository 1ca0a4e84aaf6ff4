package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// At returns the topmost mount at exactly that path, or nil if there is none. It reads only the mount table and makes
// no request to a file server.
func At(path string) (*mountinfo.Info, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // not of path itself: that would make a request to its server
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

// Detach unmounts local file systems, the last of the list first. Processes that use them keep them until they end, see
// MNT_DETACH in umount2(2). The error names each mount that could not be unmounted.
func Detach(mounts []*mountinfo.Info) error {
	var failed []error
	for _, m := range slices.Backward(mounts) {
		// Not a link, should one have replaced the mount point.
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(failed...)
}

// Remote unmounts file systems of servers that may not answer.
type Remote struct {
	Runner Runner
	// Patience bounds each way of unmounting: the plain one, which writes back dirty data; with force, which fails
	// requests that wait for the server; and detached. 0 is ten seconds.
	Patience time.Duration
}

// Unmount unmounts path within three times Patience, whatever the server does. It returns nil if nothing is mounted
// there. lost is true if the server did not answer, so that dirty data is lost. The error for a mount that a process
// uses is EBUSY.
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
			continue // another mount may be below it
		case slow:
			lost = true
		default:
			return lost, err
		}
	}
	at, mountErr := At(path)
	if at != nil {
		return lost, errors.Join(err, fmt.Errorf("unmount %s: still mounted", path))
	}
	return lost, mountErr
}
