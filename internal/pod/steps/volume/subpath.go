package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/pod"
)

// MountPath returns the path on the host that the runtime mounts for one volumeMount of a container. The path is safe,
// whatever containers do inside the volume. subPath is the mount's, expanded. Its missing directories are created with
// the mode of the volume's directory.
//
// A subPath, or a path that others may replace, is not safe as it is. So MountPath opens the file and bind mounts it to
// a path of this volumeMount. It is idempotent: a source that was replaced since is bound again. Teardown removes the
// bind mount.
//
// For an image volume it returns subPath itself: the runtime resolves it below the image.
func (v *Volumes) MountPath(ctx context.Context, p *corev1.Pod, containerName string, mountIndex int,
	subPath string) (hostPath string, err error) {
	c, ok := pod.FindContainer(p, containerName)
	if !ok || mountIndex < 0 || mountIndex >= len(c.VolumeMounts) {
		return "", fmt.Errorf("container %q has no volume mount %d", containerName, mountIndex)
	}
	mount := c.VolumeMounts[mountIndex]
	volume, ok := v.get(p.UID, mount.Name)
	if !ok {
		return "", fmt.Errorf("cannot find volume %q to mount into container %q", mount.Name, containerName)
	}
	fail := func(err error) (string, error) {
		if subPath != "" {
			return "", fmt.Errorf("bind subPath %q of volume %q: %w", subPath, mount.Name, err)
		}
		return "", fmt.Errorf("open volume %q: %w", mount.Name, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if volume.Image != "" {
		return subPath, nil
	}
	dir, err := v.podDir(p.UID)
	if err := errors.Join(err, safepath.Name(mount.Name), safepath.Name(containerName)); err != nil {
		return fail(err)
	}
	target := filepath.Join(dir, subPathsDir, mount.Name, containerName, strconv.Itoa(mountIndex))
	if volume.remote {
		hostPath, err = v.bindRemote(ctx, volume, mount, subPath, target)
	} else {
		hostPath, err = v.bindIfNeeded(ctx, volume, mount, subPath, target)
	}
	if err != nil {
		return fail(err)
	}
	return hostPath, nil
}

// bindIfNeeded returns the path to mount: the volume's own, or target with a bind mount.
func (v *Volumes) bindIfNeeded(ctx context.Context, volume mounted, mount corev1.VolumeMount,
	subPath, target string) (hostPath string, err error) {
	source, err := v.open(volume, mount)
	if err != nil {
		return "", err
	}
	if source == nil && subPath == "" {
		return volume.Path, nil
	}
	if subPath != "" {
		if source, err = openSubPath(volume.Path, source, subPath); err != nil {
			return "", err
		}
	}
	defer source.Close()
	return target, bindOnce(ctx, source, target, mount.ReadOnly)
}

// remotePatience bounds how long a container's start waits for the server of a volume. Then the start fails and is
// retried.
const remotePatience = 30 * time.Second

// bindRemote is bindIfNeeded for a volume on a server. A thread that waits for a dead server cannot be interrupted. It
// is left behind with the lock of its mount, so that there is never more than one.
func (v *Volumes) bindRemote(ctx context.Context, volume mounted, mount corev1.VolumeMount,
	subPath, target string) (hostPath string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, remotePatience,
		fmt.Errorf("the volume's server has not answered in %s", remotePatience))
	defer cancel()
	unlock, err := v.remote.Lock(ctx, target)
	if err != nil {
		return "", context.Cause(ctx)
	}
	type result struct {
		path string
		err  error
	}
	done := make(chan result, 1)
	guard.Go(func() {
		defer unlock()
		// Without an answer of the server, the runtime would wait for ever.
		_, err := os.Stat(volume.Path)
		if err != nil {
			done <- result{err: err}
			return
		}
		path, err := v.bindIfNeeded(ctx, volume, mount, subPath, target)
		done <- result{path, err}
	}, func(p *guard.Panic) { done <- result{err: p} })
	select {
	case r := <-done:
		return r.path, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// open opens a volume whose path others may replace. It returns nil if the container mounts the path itself: for other
// volumes, for a path with byPath, and for a mount with propagation. A bind mount made here would receive later mounts
// of the host twice.
func (v *Volumes) open(m mounted, mount corev1.VolumeMount) (*os.File, error) {
	k, ok := m.kind.(Opener)
	if !ok {
		return nil, nil
	}
	f, err := k.Open(m.request)
	if f == nil || err != nil {
		return nil, err
	}
	if mount.SubPath != "" || mount.SubPathExpr != "" {
		return f, nil
	}
	propagates := mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone
	byPath, err := v.byPath(f)
	if err != nil || propagates || byPath {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// byPath reports whether a directory must be mounted by its path: it is in the agent's directory or contains it, or has
// a mount below. A bind mount of it in the host's mount namespace would keep the host from removing those mount points
// (EBUSY).
func (v *Volumes) byPath(f *os.File) (bool, error) {
	at, err := safepath.Location(f)
	if err != nil {
		return false, err
	}
	root, err := filepath.EvalSymlinks(v.cfg.Root)
	if err != nil || within(at, root) || within(root, at) {
		return true, err
	}
	below, err := mountinfo.GetMounts(mountinfo.PrefixFilter(at))
	return slices.ContainsFunc(below, func(m *mountinfo.Info) bool { return m.Mountpoint != at }), err
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// openSubPath opens a path below a volume and closes root, the volume's directory. If root is nil, it opens the
// directory itself.
func openSubPath(volumePath string, root *os.File, subPath string) (*os.File, error) {
	if root == nil {
		var err error
		if root, err = safepath.Host(volumePath); err != nil {
			return nil, err
		}
	}
	defer root.Close()
	info, err := root.Stat()
	if err != nil {
		return nil, err
	}
	return safepath.MkdirAll(root, subPath, info.Mode())
}

// bindOnce binds source on target, unless the same source is bound there already. It does nothing after the end of ctx,
// because the pod of target may be gone by then.
func bindOnce(ctx context.Context, source *os.File, target string, readOnly bool) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	mounted, err := mountinfo.Mounted(target)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case mounted:
		there, err := os.Stat(target)
		if err != nil {
			return err
		}
		if os.SameFile(info, there) && isReadOnly(target) == readOnly {
			return nil
		}
		if err := Unmount(target); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := mountPoint(target, info.IsDir()); err != nil {
		return err
	}
	return bind(source, target, readOnly)
}

func isReadOnly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// mountPoint makes an empty directory or file to mount on.
func mountPoint(target string, dir bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if info, err := os.Lstat(target); err == nil {
		if info.IsDir() == dir {
			return nil
		}
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if dir {
		return os.Mkdir(target, 0o750)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}
