package kubeapi

import "time"

// State says whether the API server answers, and since when.
type State struct {
	// Since is zero until the first request has ended.
	Since time.Time
	// Err is the error of the newest request while the server does not answer.
	Err error
	// First is the start of the first request that failed, Last the end of the newest one. Both are zero while the
	// server answers.
	First, Last time.Time
}

// Away reports whether the server does not answer.
func (s State) Away() bool { return s.Err != nil }

// Failing returns how long all requests have failed, or 0 while the server answers. A pending request is no failure:
// a slow server is not away.
func (s State) Failing() time.Duration { return s.Last.Sub(s.First) }

// outcome is the result of a request.
type outcome struct {
	Began, Ended time.Time
	Err          error // nil for any response, even a refusal, unless its body missed the deadline
}

// judge returns the state after a request. A failure counts only if its request began after the last response.
func judge(s State, answered time.Time, o outcome) State {
	switch {
	case o.Err == nil && (s.Away() || s.Since.IsZero()):
		return State{Since: o.Ended}
	case o.Err == nil || o.Began.Before(answered):
		return s
	case s.Away():
		return State{Since: s.Since, Err: o.Err, First: s.First, Last: o.Ended}
	}
	return State{Since: o.Ended, Err: o.Err, First: o.Began, Last: o.Ended}
}

// unavailable reports whether a status comes from a gateway, or from a server that is not ready (RFC 9110: 502, 503,
// 504).
func unavailable(code int) bool { return code >= 502 && code <= 504 }
