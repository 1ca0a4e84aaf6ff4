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

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/pod"
)

// MountPath is what one volumeMount of a container shows, on the host: that path
// is safe to hand to the runtime, whatever containers do in the volume. subPath
// is the mount's, expanded; what is missing of it is made as directories with the
// mode of the volume's own.
//
// A part of a volume, and a path that others may replace, is opened by
// descriptor and bound to a place of this mount. It is idempotent: what was
// replaced since is bound anew. Teardown removes the bind.
//
// Of an image it is subPath itself: the runtime resolves that below the image.
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
		hostPath, err = v.showRemote(ctx, volume, mount, subPath, target)
	} else {
		hostPath, err = v.show(ctx, volume, mount, subPath, target)
	}
	if err != nil {
		return fail(err)
	}
	return hostPath, nil
}

// show has what a mount shows at the path that is returned: the volume's own, or
// target with a bind of it.
func (v *Volumes) show(ctx context.Context, volume mounted, mount corev1.VolumeMount,
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

// remotePatience is how long a container's start waits for the server of one of
// its volumes, before it is said and tried again.
const remotePatience = 30 * time.Second

// showRemote is show for a volume of a server. A thread that waits for one that
// is gone cannot be called back: it is left, and holds the lock of its mount, so
// that there is never more than one.
func (v *Volumes) showRemote(ctx context.Context, volume mounted, mount corev1.VolumeMount,
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
	go func() {
		defer unlock()
		// The runtime is to find a server that answers: it would wait without end.
		_, err := os.Stat(volume.Path)
		if err != nil {
			done <- result{err: err}
			return
		}
		path, err := v.show(ctx, volume, mount, subPath, target)
		done <- result{path, err}
	}()
	select {
	case r := <-done:
		return r.path, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// open opens a volume whose path others may replace; nil for any other, and for
// what is mounted by its path (byPath), or is to show later mounts of the host,
// which a bind made here would see twice.
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

// byPath says whether an open directory is in the agent's or around it, or has
// something mounted below. A bind of that in the host's mount namespace
// would keep the host from removing those mount points (EBUSY).
func (v *Volumes) byPath(f *os.File) (bool, error) {
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
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

// openSubPath opens a part of a volume, and closes root. nil: the volume is opened here.
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

// bindOnce binds source on target unless exactly that is there, and unless ctx
// has ended before: then the target's pod may be gone.
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
