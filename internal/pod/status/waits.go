package status

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/worker"
)

// Awaited returns the reason and the message of a waiting container if something keeps all containers of a pod from
// starting. The first of these counts: a failed pull of a volume's image, missing objects, or a step that waits for
// something else, such as a volume that is not attached yet. ok is false if nothing keeps them from starting.
func Awaited(p *corev1.Pod, s worker.State) (why, message string, ok bool) {
	var names []string
	var lacking, other string
	for task, err := range s.Failures {
		if !strings.HasPrefix(task, "step/") {
			continue
		}
		if e := PullFailure(err); e != nil {
			return e.Reason, e.Message(), true
		}
		keys, _ := object.Waits(err)
		for _, key := range keys {
			names = append(names, key.String())
		}
		if l, ok := errors.AsType[*object.Lacking](err); ok {
			lacking = ": " + l.Error()
		}
		if r, ok := errors.AsType[*worker.RetryError](err); ok {
			other = reason.Message(r.Err)
		}
	}
	slices.Sort(names)
	why = reason.ContainerCreating
	if len(p.Spec.InitContainers) > 0 {
		why = reason.PodInitializing
	}
	if len(names) == 0 {
		return why, other, other != ""
	}
	return why, "waiting for " + strings.Join(slices.Compact(names), ", ") + lacking, true
}

// PullFailure returns the failure of an image pull that is wrapped in err; nil if there is none.
func PullFailure(err error) *reason.Error {
	switch e := err.(type) { //nolint:errorlint // it walks the whole tree of errors itself
	case *reason.Error:
		if slices.Contains([]string{
			reason.ErrImagePull, reason.ImagePullBackOff, reason.ErrImageNeverPull, reason.InvalidImageName,
			reason.ImageInspectError,
			reason.RegistryUnavailable, reason.SignatureValidationFailed,
		}, e.Reason) {
			return e
		}
		return PullFailure(e.Err)
	case interface{ Unwrap() error }:
		return PullFailure(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if found := PullFailure(inner); found != nil {
				return found
			}
		}
	}
	return nil
}
