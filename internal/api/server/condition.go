package server

import (
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-run/berth/internal/api/answer"
)

func (s podRoutes) setCondition(w http.ResponseWriter, r *http.Request) error {
	var body corev1.PodCondition
	if err := readAmendment(w, r, &body); err != nil {
		return err
	}
	if wrong := validation.IsQualifiedName(string(body.Type)); len(wrong) > 0 {
		return answer.BadRequest(fmt.Sprintf("condition type %q: %s", body.Type, strings.Join(wrong, "; ")),
			"name it as the pod's readinessGates do, such as example.com/lb")
	}
	switch body.Status {
	case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
	default:
		return answer.BadRequest(fmt.Sprintf("condition status %q", body.Status), "give True, False or Unknown")
	}
	now, err := s.Amender.SetCondition(r.Context(), key(r), body)
	return s.answerPod(w, now, err)
}
