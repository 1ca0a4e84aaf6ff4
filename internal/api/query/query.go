package query

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api/answer"
)

// Parse returns the parameters of a request, or a bad request.
func Parse(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, answer.BadRequest(fmt.Sprintf("malformed query: %v", err), "escape the query as RFC 3986 says")
	}
	return q, nil
}

// Query reads parameters and keeps the first error, so that a handler checks for it once.
type Query struct {
	url.Values
	// Err is the first error.
	Err error
}

// Of returns the parameters of a request that Parse has accepted.
func Of(r *http.Request) *Query { return &Query{Values: r.URL.Query()} }

// Bad records that a parameter is not what it must be. newError makes the error.
func (q *Query) Bad(newError func(message, next string) error, name, want string) {
	if q.Err == nil {
		q.Err = newError(fmt.Sprintf("query parameter %s=%q is not %s", name, q.Get(name), want),
			"set "+name+" to "+want+", or leave it out")
	}
}

// Flag reads a boolean. A missing parameter is fallback, and one without a value is true.
func (q *Query) Flag(name string, fallback bool) bool {
	if !q.Has(name) {
		return fallback
	}
	if q.Get(name) == "" {
		return true
	}
	b, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		q.Bad(answer.BadRequest, name, "true or false")
	}
	return b
}

// Number reads an integer of at least the minimum. It returns nil if the parameter is missing.
func (q *Query) Number(name string, minimum int64) *int64 {
	if !q.Has(name) {
		return nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	switch want := fmt.Sprintf("a number of at least %d", minimum); {
	case err != nil:
		q.Bad(answer.BadRequest, name, want)
		return nil
	case n < minimum:
		q.Bad(answer.Invalid, name, want)
		return nil
	}
	return &n
}

// Time reads a time in the format of RFC 3339. It returns nil if the parameter is missing.
func (q *Query) Time(name string) *metav1.Time {
	if !q.Has(name) {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, q.Get(name))
	if err != nil {
		q.Bad(answer.BadRequest, name, "a time like 2006-01-02T15:04:05Z")
		return nil
	}
	return &metav1.Time{Time: t}
}
