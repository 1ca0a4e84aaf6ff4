package kubeapi

import "time"

// State says whether the API server answers, and since when that is so.
type State struct {
	// Since is zero while nothing was asked yet, or what was has no answer yet.
	Since time.Time
	// Err is why, when it does not answer: of the newest request.
	Err error
	// First is when the first request began that got no answer, Last when the
	// newest was given up, while the server does not answer.
	First, Last time.Time
}

// Away says that the server does not answer.
func (s State) Away() bool { return s.Err != nil }

// Failing is for how long nothing but failures came, 0 while the server answers. A
// request that still waits is none: a slow server is not away.
func (s State) Failing() time.Duration { return s.Last.Sub(s.First) }

// outcome is what became of a request.
type outcome struct {
	Began, Ended time.Time
	Err          error // nil: it was answered, if only with a refusal
}

// judge is the state after a request. A failure counts only if the request began
// after heard, the last answer: what was asked before is older news.
func judge(s State, heard time.Time, o outcome) State {
	switch {
	case o.Err == nil && (s.Away() || s.Since.IsZero()):
		return State{Since: o.Ended}
	case o.Err == nil || o.Began.Before(heard):
		return s
	case s.Away():
		return State{Since: s.Since, Err: o.Err, First: s.First, Last: o.Ended}
	}
	return State{Since: o.Ended, Err: o.Err, First: o.Began, Last: o.Ended}
}

// unavailable are the answers of something before the API server, or of one that
// does not serve yet (RFC 9110: 502, 503, 504).
func unavailable(code int) bool { return code >= 502 && code <= 504 }
