package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/safepath"
)

// SubPath binds a part of a volume for one mount of one container and returns
// where: that path is safe to hand to the runtime, whatever containers do in
// the volume. What is missing of subPath is made as directories with the mode of
// the volume's own. volumePath is the volume on the host, subPath is expanded.
//
// It is idempotent; a part that was replaced since is bound anew. Teardown
// removes the bind.
func (v *Volumes) SubPath(ctx context.Context, p *corev1.Pod, containerName string, mountIndex int, volumePath, subPath string, readOnly bool) (hostPath string, err error) {
	c, ok := pod.FindContainer(p, containerName)
	if !ok || mountIndex < 0 || mountIndex >= len(c.VolumeMounts) {
		return "", fmt.Errorf("bind subPath %q: container %q has no volume mount %d", subPath, containerName, mountIndex)
	}
	volumeName := c.VolumeMounts[mountIndex].Name
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("bind subPath %q of volume %q: %w", subPath, volumeName, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	for _, name := range []string{volumeName, containerName} {
		if err := safepath.Name(name); err != nil {
			return fail(err)
		}
	}
	dir, err := v.podDir(p.UID)
	if err != nil {
		return fail(err)
	}
	source, err := openSubPath(volumePath, subPath)
	if err != nil {
		return fail(err)
	}
	defer source.Close()
	target := filepath.Join(dir, subPathsDir, volumeName, containerName, strconv.Itoa(mountIndex))
	if err := bindOnce(source, target, readOnly); err != nil {
		return fail(err)
	}
	return target, nil
}

func openSubPath(volumePath, subPath string) (*os.File, error) {
	root, err := safepath.Host(volumePath)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat()
	if err != nil {
		return nil, err
	}
	return safepath.MkdirAll(root, subPath, info.Mode())
}

// bindOnce binds source on target unless exactly that is there.
func bindOnce(source *os.File, target string, readOnly bool) error {
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
