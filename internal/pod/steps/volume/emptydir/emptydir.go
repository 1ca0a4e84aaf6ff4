package emptydir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/base/quota"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// Kind makes emptyDir volumes.
type Kind struct {
	// Allocatable is the memory in bytes that all pods of the node may have.
	Allocatable int64
	// Limits has the memory limits of pods.
	Limits Limits
	// HugePages is the kernel's directory with the sizes of huge pages. The default is /sys/kernel/mm/hugepages.
	HugePages string
	// Quotas count what lies in volumes on disk. The zero value counts nothing.
	Quotas Quotas
}

// Limits has the memory limits of the cgroups of pods.
type Limits interface {
	// Memory returns the limit of a pod in bytes; 0 is none.
	Memory(*corev1.Pod) int64
}

// Quotas count what lies in the volumes on disk that a limit of local storage applies to, where the file system has
// project quotas.
type Quotas struct {
	// Projects gives volumes their IDs. nil: volumes are not counted.
	Projects *quota.Projects
	// Enforce makes writes beyond a sizeLimit fail.
	Enforce bool
	Log     *slog.Logger
}

// publish gives a new volume a project, and sets the limit of a volume that has one. Without a project the volume is
// walked, so that an error here is no error of the pod.
func (q Quotas) publish(r volume.Request, dir string, fresh bool) {
	if q.Projects == nil || !limited(r.Pod, r.Volume.EmptyDir) {
		return
	}
	if fresh {
		if _, err := q.Projects.Assign(dir); err != nil {
			q.Log.Warn("cannot count a volume by a project quota, walking it instead", "pod", pod.FullName(r.Pod),
				"volume", r.Volume.Name, "err", err)
			return
		}
	}
	if err := quota.Limit(dir, enforced(r.Volume.EmptyDir, q.Enforce)); err != nil {
		q.Log.Warn("cannot limit a volume by a project quota, evicting the pod at its limit instead", "pod",
			pod.FullName(r.Pod), "volume", r.Volume.Name, "err", err)
	}
}

// Dir is the name of the kubelet's directory for these volumes.
func (Kind) Dir() string { return "kubernetes.io~empty-dir" }

// Serves reports whether the volume is an emptyDir.
func (Kind) Serves(v *corev1.Volume) bool { return v.EmptyDir != nil }

// Publish makes the volume. An existing volume keeps the mode and owner that the pod has set meanwhile.
func (k Kind) Publish(_ context.Context, r volume.Request) (string, error) {
	var fsGroup *int64
	if s := r.Pod.Spec.SecurityContext; s != nil {
		fsGroup = s.FSGroup
	}
	source := r.Volume.EmptyDir
	base := uint32(0o777)
	if source.Medium == corev1.StorageMediumMemory {
		base = 0o1777 // the kernel's default for a tmpfs
	}
	mode, err := mode(base, source.Mode, fsGroup)
	if err != nil {
		return "", err
	}
	switch {
	case source.Medium == corev1.StorageMediumDefault:
		err = k.directory(r, mode, fsGroup)
	case source.Medium == corev1.StorageMediumMemory:
		err = tmpfs(r.Target, tmpfsSize(source.SizeLimit, k.Limits.Memory(r.Pod), k.Allocatable), mode, fsGroup)
	case strings.HasPrefix(string(source.Medium), string(corev1.StorageMediumHugePages)):
		err = k.hugetlbfs(r, mode, fsGroup)
	default:
		err = fmt.Errorf("emptyDir has the unknown medium %q", source.Medium)
	}
	return r.Target, err
}

// Unpublish removes the volume with its content.
func (Kind) Unpublish(ctx context.Context, target string) error {
	if err := volume.Unmount(target); err != nil {
		return err
	}
	// The limit goes first: once the directory is gone, nothing names its project any more.
	if err := quota.Release(target); err != nil {
		return err
	}
	return safepath.RemoveAll(ctx, target)
}

// directory makes the directory under a temporary name and renames it when it is complete.
func (k Kind) directory(r volume.Request, mode uint32, fsGroup *int64) error {
	target := r.Target
	if info, err := os.Lstat(target); err == nil && info.IsDir() {
		k.Quotas.publish(r, target, false)
		return nil
	}
	unfinished := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".new")
	if err := os.Mkdir(unfinished, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if fsGroup != nil {
		if err := os.Lchown(unfinished, -1, int(*fsGroup)); err != nil {
			return err
		}
	}
	if err := unix.Chmod(unfinished, mode); err != nil {
		return &os.PathError{Op: "chmod", Path: unfinished, Err: err}
	}
	k.Quotas.publish(r, unfinished, true)
	return os.Rename(unfinished, target)
}

func tmpfs(target string, size int64, mode uint32, fsGroup *int64) error {
	options := []option{{"noswap", "", true}}
	if size > 0 {
		options = append(options, option{"size", strconv.FormatInt(size, 10), false})
	}
	return mount(target, "tmpfs", unix.TMPFS_MAGIC, mode, withGroup(options, fsGroup))
}

func (k Kind) hugetlbfs(r volume.Request, mode uint32, fsGroup *int64) error {
	source := r.Volume.EmptyDir
	size, err := pageSize(r.Pod, source.Medium)
	if err != nil {
		return err
	}
	if err := k.hasPages(size); err != nil {
		return fmt.Errorf("medium %s: %w", source.Medium, err)
	}
	options := []option{{"pagesize", strconv.FormatInt(size, 10), false}}
	if l := source.SizeLimit; l != nil && l.Value() > 0 {
		options = append(options, option{"size", strconv.FormatInt(l.Value(), 10), false})
	}
	return mount(r.Target, "hugetlbfs", unix.HUGETLBFS_MAGIC, mode, withGroup(options, fsGroup))
}

// hasPages returns an error if the host has no huge pages of that size.
func (k Kind) hasPages(size int64) error {
	root := k.HugePages
	if root == "" {
		root = "/sys/kernel/mm/hugepages"
	}
	dir := filepath.Join(root, fmt.Sprintf("hugepages-%dkB", size>>10))
	human := resource.NewQuantity(size, resource.BinarySI).String()
	pages := int64(0)
	for _, name := range []string{"nr_hugepages", "nr_overcommit_hugepages"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("this host has no huge pages of %s", human)
		}
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			return fmt.Errorf("read %s: %w", filepath.Join(dir, name), err)
		}
		pages += n
	}
	if pages == 0 {
		return fmt.Errorf("this host has set aside no huge pages of %s: write their number to %s", human,
			filepath.Join(dir, "nr_hugepages"))
	}
	return nil
}

func withGroup(options []option, fsGroup *int64) []option {
	if fsGroup == nil {
		return options
	}
	return append(options, option{"gid", strconv.FormatInt(*fsGroup, 10), false})
}
