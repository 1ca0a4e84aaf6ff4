package leftover

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"
)

// Finder finds the pods that earlier agents left on this node, running or not.
type Finder struct {
	Orphans []Owner
	Users   []User
}

// Owner has directories, volumes or cgroups of pods.
type Owner interface {
	// Orphans lists the pods that it has something of, but for the known ones.
	Orphans(known func(types.UID) bool) ([]types.UID, error)
}

// User has pods that use something of the node, such as a device.
type User interface {
	Users() []types.UID
}

// Pods lists the pods. After an error it continues with the rest, and returns all errors.
func (f Finder) Pods() (all []types.UID, err error) {
	none := func(types.UID) bool { return false }
	for _, o := range f.Orphans {
		left, failed := o.Orphans(none)
		all, err = append(all, left...), errors.Join(err, failed)
	}
	for _, u := range f.Users {
		all = append(all, u.Users()...)
	}
	return all, err
}
