package object

import "slices"

// Missing is the error for an object that does not exist.
type Missing struct{ Key Key }

func (e *Missing) Error() string { return "waiting for " + e.Key.String() }

// Unknown is the error for an object while the cluster has not reported yet whether the object exists. A reader must
// wait even if the object is optional for it.
type Unknown struct{ Key Key }

func (e *Unknown) Error() string {
	return "waiting for the API server's answer about " + e.Key.String()
}

// Lacking is the error for an object without something that is needed, such as a key of its data.
type Lacking struct {
	Key Key
	Err error
}

func (e *Lacking) Error() string { return e.Err.Error() }

func (e *Lacking) Unwrap() error { return e.Err }

// Unanswered reports whether err says only that the API server has not answered about some objects yet. Each pod of a
// cluster begins in this way, so it is no failure.
func Unanswered(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the function itself visits all leaves of the error tree
	case *Unknown:
		return true
	case interface{ Unwrap() error }:
		return Unanswered(e.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(inner error) bool { return !Unanswered(inner) })
	}
	return false
}

// Waits returns the objects after whose change a retry of what failed with err makes sense. only says that no other
// event makes a retry worthwhile.
func Waits(err error) (keys []Key, only bool) {
	switch e := err.(type) { //nolint:errorlint // the function itself visits all leaves of the error tree
	case nil:
		return nil, false
	case *Missing:
		return []Key{e.Key}, true
	case *Unknown:
		return []Key{e.Key}, true
	case *Lacking:
		return []Key{e.Key}, true
	case interface{ Unwrap() error }:
		return Waits(e.Unwrap())
	case interface{ Unwrap() []error }:
		only = true
		for _, inner := range e.Unwrap() {
			more, all := Waits(inner)
			keys, only = append(keys, more...), only && all
		}
		return keys, only && len(keys) > 0
	}
	return nil, false
}
