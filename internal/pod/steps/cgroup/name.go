package cgroup

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/cgroups/systemd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Name is a cgroup's place in the tree, with one element for each level.
type Name []string

// parseName reads a path such as /edge/pods. "" and / are the root.
func parseName(p string) Name {
	var n Name
	for part := range strings.SplitSeq(p, "/") {
		if part != "" {
			n = append(n, part)
		}
	}
	return n
}

func (n Name) child(parts ...string) Name {
	return append(append(make(Name, 0, len(n)+len(parts)), n...), parts...)
}

// Cgroupfs returns the name as a path below a controller's mount point.
func (n Name) Cgroupfs() string { return "/" + path.Join(n...) }

// Systemd returns the name as nested slices. A slice's name contains the names of the slices around it,
// separated by -, and therefore - within a name becomes _.
func (n Name) Systemd() (string, error) {
	if len(n) == 0 {
		return "/", nil
	}
	parts := make([]string, len(n))
	for i, part := range n {
		parts[i] = strings.ReplaceAll(part, "-", "_")
	}
	return systemd.ExpandSlice(strings.Join(parts, "-") + ".slice")
}

// level returns the cgroup below root that the pods of a QoS class are in.
func level(root Name, class corev1.PodQOSClass) Name {
	pods := root.child("kubepods")
	if class == corev1.PodQOSGuaranteed {
		return pods
	}
	return pods.child(strings.ToLower(string(class)))
}

const podPrefix = "pod"

// podName returns the cgroup of one pod. It refuses a UID that cannot be part of a path, because a manifest may
// contain any text.
func podName(root Name, class corev1.PodQOSClass, uid types.UID) (Name, error) {
	if uid == "" {
		return nil, errors.New("the pod has no UID")
	}
	if strings.ContainsAny(string(uid), "/\x00") || strings.Contains(string(uid), "..") {
		return nil, fmt.Errorf("the pod's UID %q cannot be part of a path", uid)
	}
	return level(root, class).child(podPrefix + string(uid)), nil
}

// podUID returns the UID in the last part of a pod's cgroup path.
func podUID(base string, driver Driver) (types.UID, bool) {
	if driver == Systemd {
		slice, ok := strings.CutSuffix(base, ".slice")
		if !ok {
			return "", false
		}
		base = strings.ReplaceAll(slice[strings.LastIndex(slice, "-")+1:], "_", "-")
	}
	uid, ok := strings.CutPrefix(base, podPrefix)
	return types.UID(uid), ok && uid != ""
}
