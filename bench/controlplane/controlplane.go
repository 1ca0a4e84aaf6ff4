package controlplane

import (
	"errors"
	"fmt"
	"os"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

// Use starts a control plane for f, on the same CPUs, and ends it. What fails in the control plane is
// the error, too.
func Use(o kubeapitest.Options, f func(*kubeapitest.Cluster) error) error {
	u := &user{}
	err := u.run(func() error { return f(kubeapitest.Start(u, o)) })
	return errors.Join(err, u.end())
}

// user is what a test is elsewhere.
type user struct{ cleanups []func() }

// failure is what Fatalf ends run with.
type failure struct{ error }

func (*user) Helper() {}

func (*user) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (*user) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (u *user) Cleanup(f func()) { u.cleanups = append(u.cleanups, f) }

// run calls f and gives its error, or that of a Fatalf.
func (*user) run(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	return f()
}

// end has the control plane removed.
func (u *user) end() error {
	var err error
	for len(u.cleanups) > 0 {
		last := len(u.cleanups) - 1
		f := u.cleanups[last]
		u.cleanups = u.cleanups[:last]
		err = errors.Join(err, u.run(func() error { f(); return nil }))
	}
	return err
}
