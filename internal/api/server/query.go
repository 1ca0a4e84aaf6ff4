package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func parseQuery(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, BadRequest(fmt.Sprintf("malformed query: %v", err), "")
	}
	return q, nil
}

// query reads parameters and keeps the first error, so that a handler checks for it once.
type query struct {
	url.Values
	err error
}

func queryOf(r *http.Request) *query { return &query{Values: r.URL.Query()} }

// bad records that a parameter is not what it must be. newError makes the error.
func (q *query) bad(newError func(message, next string) error, name, want string) {
	if q.err == nil {
		q.err = newError(fmt.Sprintf("query parameter %s=%q is not %s", name, q.Get(name), want), "")
	}
}

// flag reads a boolean. A missing parameter is fallback, and one without a value is true.
func (q *query) flag(name string, fallback bool) bool {
	if !q.Has(name) {
		return fallback
	}
	if q.Get(name) == "" {
		return true
	}
	b, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		q.bad(BadRequest, name, "true or false")
	}
	return b
}

// number reads an integer of at least the minimum. It returns nil if the parameter is missing.
func (q *query) number(name string, minimum int64) *int64 {
	if !q.Has(name) {
		return nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	switch want := fmt.Sprintf("a number of at least %d", minimum); {
	case err != nil:
		q.bad(BadRequest, name, want)
		return nil
	case n < minimum:
		q.bad(invalid, name, want)
		return nil
	}
	return &n
}

// time reads a time in the format of RFC 3339. It returns nil if the parameter is missing.
func (q *query) time(name string) *metav1.Time {
	if !q.Has(name) {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, q.Get(name))
	if err != nil {
		q.bad(BadRequest, name, "a time like 2006-01-02T15:04:05Z")
		return nil
	}
	return &metav1.Time{Time: t}
}
