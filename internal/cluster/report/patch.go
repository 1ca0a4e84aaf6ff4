package report

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// difference returns the strategic merge patch from one status to another, without a precondition. It is empty if
// they are equal.
func difference(from, to corev1.PodStatus) (string, error) {
	if equality.Semantic.DeepEqual(from, to) {
		return "", nil
	}
	type object struct {
		Status corev1.PodStatus `json:"status"`
	}
	was, err := json.Marshal(object{from})
	if err != nil {
		return "", fmt.Errorf("render pod status: %w", err)
	}
	now, err := json.Marshal(object{to})
	if err != nil {
		return "", fmt.Errorf("render pod status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, now, corev1.Pod{})
	if err != nil {
		return "", fmt.Errorf("compare pod statuses: %w", err)
	}
	if string(patch) == "{}" {
		return "", nil
	}
	return string(patch), nil
}

// guarded adds the precondition that the pod still has this UID. An empty difference stays a patch: it checks whether
// the pod still exists.
func guarded(patch string, uid types.UID) []byte {
	head := fmt.Sprintf(`{"metadata":{"uid":%q}`, uid)
	if patch == "" || patch == "{}" {
		return []byte(head + "}")
	}
	return []byte(head + "," + patch[1:])
}
