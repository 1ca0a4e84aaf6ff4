package controlplane

import (
	"errors"
	"fmt"
	"os"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

// Use starts a control plane on the same CPUs, calls f and ends the control plane. It returns the error of f, and
// failures of the control plane.
func Use(o kubeapitest.Options, f func(*kubeapitest.Cluster) error) error {
	u := &user{}
	err := u.run(func() error { return f(kubeapitest.Start(u, o)) })
	return errors.Join(err, u.end())
}

// user stands in for a test in package kubeapitest.
type user struct{ cleanups []func() }

// failure is the value of Fatalf's panic, which ends run.
type failure struct{ error }

func (*user) Helper() {}

func (*user) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (*user) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (u *user) Cleanup(f func()) { u.cleanups = append(u.cleanups, f) }

// run calls f and returns its error, or the error of a Fatalf.
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

// end runs the cleanups, which remove the control plane.
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
