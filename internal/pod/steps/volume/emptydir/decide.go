package emptydir

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/base/quantity"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/eviction/storage"
)

// tmpfsSize is the size in bytes of a volume in memory: the smallest of its sizeLimit, the pod's memory limit and the
// memory that pods may have on the node. A 0 is no limit (KEP-1967).
func tmpfsSize(sizeLimit *resource.Quantity, podLimit, allocatable int64) int64 {
	limits := []int64{podLimit, allocatable}
	if sizeLimit != nil {
		limits = append(limits, sizeLimit.Value())
	}
	size := int64(0)
	for _, l := range limits {
		if l > 0 && (size == 0 || l < size) {
			size = l
		}
	}
	return size
}

// pageSize is the size in bytes of the huge pages of a volume. A medium that names a size needs a request for pages of
// that size in the pod or a container. Otherwise it is the only size that they request.
func pageSize(p *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	requested, err := requestedPages(p)
	if err != nil {
		return 0, err
	}
	if text, ok := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); ok {
		q, err := quantity.Parse(text)
		if err != nil {
			return 0, fmt.Errorf("medium %s: %q is not a page size: %w", medium, text, err)
		}
		if !requested[q.Value()] {
			return 0, fmt.Errorf(
				"medium %s: hugePages storage requested, but there is no resource request for huge pages of that size",
				medium)
		}
		return q.Value(), nil
	}
	switch len(requested) {
	case 0:
		return 0, errors.New(
			"medium HugePages: hugePages storage requested, but there is no resource request for huge pages")
	case 1:
		for size := range requested {
			return size, nil
		}
	}
	return 0, errors.New(
		"medium HugePages: can't be used if container requests multiple huge page sizes; name one, as in HugePages-2Mi")
}

// requestedPages returns the sizes of huge pages that the pod and its containers request.
func requestedPages(p *corev1.Pod) (map[int64]bool, error) {
	var lists []corev1.ResourceList
	if r := p.Spec.Resources; r != nil {
		lists = append(lists, r.Requests)
	}
	for _, c := range pod.Containers(p) {
		lists = append(lists, c.Resources.Requests)
	}
	sizes := map[int64]bool{}
	for _, list := range lists {
		for name := range list {
			if text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
				q, err := quantity.Parse(text)
				if err != nil {
					return nil, fmt.Errorf("the pod requests %s: %q is not a page size: %w", name, text, err)
				}
				sizes[q.Value()] = true
			}
		}
	}
	return sizes, nil
}

// mode is the volume's mode as for chmod(1): the requested one, or base. With an fsGroup, the group may write, and new
// files belong to it.
func mode(base uint32, requested *int32, fsGroup *int64) (uint32, error) {
	const setgid, most = 0o2000, 0o1777
	if requested != nil {
		if *requested < 0 || *requested > most {
			return 0, fmt.Errorf("mode %#o is not between 0 and %#o", *requested, most)
		}
		base = uint32(*requested)
	}
	if fsGroup != nil {
		base |= setgid | 0o770
	}
	return base, nil
}

// limited reports whether a limit of local storage applies to a volume on disk: its own, or the pod's.
func limited(p *corev1.Pod, source *corev1.EmptyDirVolumeSource) bool {
	return source.SizeLimit != nil && source.SizeLimit.Sign() > 0 || storage.LimitsTotal(p)
}

// enforced is the size in bytes that the file system enforces for a volume on disk; 0 is none.
func enforced(source *corev1.EmptyDirVolumeSource, enforce bool) int64 {
	if !enforce || source.SizeLimit == nil {
		return 0
	}
	return max(0, source.SizeLimit.Value())
}
