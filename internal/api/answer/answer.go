package answer

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
)

var podsResource = schema.GroupResource{Resource: "pods"}

// NotFound returns the error for a pod that is not on this node.
func NotFound(key types.NamespacedName) error {
	return Next(apierrors.NewNotFound(podsResource, key.String()),
		`list the pods of this node with "berth get pods -A"`)
}

// Failure returns an error with this HTTP code, reason and message.
func Failure(code int32, why metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: why,
		Message: message}}
}

// BadRequest returns the error for a request that cannot be read.
func BadRequest(message, next string) error {
	return Next(apierrors.NewBadRequest(message), next)
}

// Invalid returns the error for a request that can be read and has a value out of range.
func Invalid(message, next string) error {
	return Next(Failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message), next)
}

// Next adds a next step for the user to an error. It is shown after "next:".
func Next(err error, next string) error {
	st := StatusOf(err)
	if next == "" {
		return &apierrors.StatusError{ErrStatus: st}
	}
	details := metav1.StatusDetails{}
	if st.Details != nil {
		details = *st.Details
	}
	details.Causes = append(details.Causes[:len(details.Causes):len(details.Causes)],
		metav1.StatusCause{Type: api.CauseNextStep, Message: next})
	st.Details = &details
	return &apierrors.StatusError{ErrStatus: st}
}

// StatusOf returns the answer for an error.
func StatusOf(err error) metav1.Status {
	var st metav1.Status
	var withStatus apierrors.APIStatus
	switch {
	case errors.As(err, &withStatus):
		st = withStatus.Status()
		st.Message = err.Error() // with what an error around it adds
	case errors.Is(err, context.DeadlineExceeded):
		st = apierrors.NewTimeoutError(err.Error(), 1).Status()
	default:
		st = apierrors.NewInternalError(err).Status()
		st.Message = err.Error()
		if r := reason.Of(err); r != "" {
			st.Reason = metav1.StatusReason(r)
		}
	}
	st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if st.Code == 0 {
		st.Code = http.StatusInternalServerError
	}
	return st
}

// WriteError answers a request with an error.
func WriteError(w http.ResponseWriter, err error) {
	st := StatusOf(err)
	WriteJSON(w, int(st.Code), &st)
}

// RefuseTooMany refuses a request because its client has too many under way. The message says how many.
func RefuseTooMany(w http.ResponseWriter, message string) {
	WriteError(w, Next(apierrors.NewTooManyRequests(message, 1), "end some, or try again later"))
}

// WriteJSON answers a request with v as JSON.
func WriteJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // it fails only if the connection is broken, and then there is no reader
}

// SetErrorTrailer reports an error in a trailer, because the answer has begun already.
func SetErrorTrailer(w http.ResponseWriter, err error) {
	w.Header().Set(http.TrailerPrefix+api.TrailerError, strings.ReplaceAll(err.Error(), "\n", " "))
}

// ObjectNotFound returns the error for an object that is not on this node.
func ObjectNotFound(key object.Key) error {
	kind, _ := object.KindNamed(key.Kind)
	name := key.Name
	if key.Namespace != "" {
		name = key.Namespace + "/" + key.Name
	}
	return Next(apierrors.NewNotFound(schema.GroupResource{Group: kind.GroupVersionKind().Group,
		Resource: kind.Resource}, name),
		`list them with "berth get `+kind.Resource+` -A"`)
}
