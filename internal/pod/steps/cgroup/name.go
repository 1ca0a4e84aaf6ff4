package cgroup

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
)

// level returns the cgroup below root that the pods of a QoS class are in.
func level(root hierarchy.Name, class corev1.PodQOSClass) hierarchy.Name {
	pods := root.Child("kubepods")
	if class == corev1.PodQOSGuaranteed {
		return pods
	}
	return pods.Child(strings.ToLower(string(class)))
}

const podPrefix = "pod"

// podName returns the cgroup of one pod. It refuses a UID that cannot be part of a path, because a manifest may contain
// any text.
func podName(root hierarchy.Name, class corev1.PodQOSClass, uid types.UID) (hierarchy.Name, error) {
	if uid == "" {
		return nil, errors.New("the pod has no UID")
	}
	if strings.ContainsAny(string(uid), "/\x00") || strings.Contains(string(uid), "..") {
		return nil, fmt.Errorf("the pod's UID %q cannot be part of a path", uid)
	}
	return level(root, class).Child(podPrefix + string(uid)), nil
}

// podUID returns the UID in the last part of a pod's cgroup path.
func podUID(base string, driver hierarchy.Driver) (types.UID, bool) {
	if driver == hierarchy.Systemd {
		slice, ok := strings.CutSuffix(base, ".slice")
		if !ok {
			return "", false
		}
		base = strings.ReplaceAll(slice[strings.LastIndex(slice, "-")+1:], "_", "-")
	}
	uid, ok := strings.CutPrefix(base, podPrefix)
	return types.UID(uid), ok && uid != ""
}
