package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/containers"
)

// Amender changes the fields of a pod that can change while it runs.
type Amender interface {
	// Resize requests other CPU and memory for a container. The pod's status shows the outcome.
	Resize(ctx context.Context, key types.NamespacedName, r api.Resize) (*corev1.Pod, error)
	// AddEphemeral adds an ephemeral container.
	AddEphemeral(ctx context.Context, key types.NamespacedName, c corev1.EphemeralContainer) (*corev1.Pod, error)
	// SetCondition sets a condition that the agent does not compute, such as one of a readiness gate. It
	// uses only the fields type, status, reason and message.
	SetCondition(ctx context.Context, key types.NamespacedName, c corev1.PodCondition) (*corev1.Pod, error)
}

// amendRoutes changes pods that run.
type amendRoutes struct {
	podTable
	amender Amender
}

// maxAmendment is the size limit of the body of a change to a pod, in bytes.
const maxAmendment = 1 << 20

func (s amendRoutes) resize(w http.ResponseWriter, r *http.Request) error {
	var body api.Resize
	if err := readAmendment(w, r, &body); err != nil {
		return err
	}
	p, _, err := s.pod(r)
	if err != nil {
		return err
	}
	c, err := containers.Choose(p, body.Container)
	if err != nil {
		return err
	}
	body.Container = c.Name
	if len(body.Resources.Requests) == 0 && len(body.Resources.Limits) == 0 {
		return answer.BadRequest("the resize names no requests and no limits",
			"name what is to change, such as limits.cpu")
	}
	now, err := s.amender.Resize(r.Context(), key(r), body)
	return s.answer(w, now, err)
}

func (s amendRoutes) addEphemeral(w http.ResponseWriter, r *http.Request) error {
	var body corev1.EphemeralContainer
	if err := readAmendment(w, r, &body); err != nil {
		return err
	}
	now, err := s.amender.AddEphemeral(r.Context(), key(r), body)
	return s.answer(w, now, err)
}

func (s amendRoutes) setCondition(w http.ResponseWriter, r *http.Request) error {
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
	now, err := s.amender.SetCondition(r.Context(), key(r), body)
	return s.answer(w, now, err)
}

// readAmendment decodes the body into v. A field that v does not have is an error.
func readAmendment(w http.ResponseWriter, r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAmendment))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("there is more than one object")
	}
	if err != nil {
		return answer.BadRequest(fmt.Sprintf("read body: %v", err),
			"send one JSON object, as docs/local-api.md shows it")
	}
	return nil
}
