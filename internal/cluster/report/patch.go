package report

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// difference is the strategic merge patch from one status to another, without
// precondition; empty when there is none.
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

// guarded is a patch of difference that the API server takes only for the pod of
// this UID. An empty one stays a patch: it asks whether the pod is still there.
func guarded(patch string, uid types.UID) []byte {
	head := fmt.Sprintf(`{"metadata":{"uid":%q}`, uid)
	if patch == "" || patch == "{}" {
		return []byte(head + "}")
	}
	return []byte(head + "," + patch[1:])
}
