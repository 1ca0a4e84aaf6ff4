package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/containers"
)

// maxAmendment is the size limit of the body of a change to a pod, in bytes.
const maxAmendment = 1 << 20

func (s podRoutes) resizePod(w http.ResponseWriter, r *http.Request) error {
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
	now, err := s.Amender.Resize(r.Context(), key(r), body)
	return s.answerPod(w, now, err)
}

func (s podRoutes) addEphemeral(w http.ResponseWriter, r *http.Request) error {
	var body corev1.EphemeralContainer
	if err := readAmendment(w, r, &body); err != nil {
		return err
	}
	now, err := s.Amender.AddEphemeral(r.Context(), key(r), body)
	return s.answerPod(w, now, err)
}

func (s podRoutes) answerPod(w http.ResponseWriter, p *corev1.Pod, err error) error {
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, typed(p, s.version(s.Pods.Revision())))
	return nil
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
		return answer.BadRequest(fmt.Sprintf("read body: %v", err), "")
	}
	return nil
}
