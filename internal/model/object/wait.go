package object

// Missing is the error of an object that is not there.
type Missing struct{ Key Key }

func (e *Missing) Error() string { return "waiting for " + e.Key.String() }

// Unknown is the error of an object of which the cluster has not told yet whether
// it is there. Who names it waits also where it may do without the object: "not
// known yet" is never "not there".
type Unknown struct{ Key Key }

func (e *Unknown) Error() string {
	return "waiting for the API server to tell of " + e.Key.String()
}

// Lacking is the error of an object that is there and does not have what is
// asked of it, such as a key of its data.
type Lacking struct {
	Key Key
	Err error
}

func (e *Lacking) Error() string { return e.Err.Error() }

func (e *Lacking) Unwrap() error { return e.Err }

// Waits lists the objects whose change is worth another try of what failed with
// err. only says that nothing else is.
func Waits(err error) (keys []Key, only bool) {
	switch e := err.(type) { //nolint:errorlint // it goes down the tree itself, to all of its leaves
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
