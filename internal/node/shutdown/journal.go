package shutdown

import (
	"errors"
	"io/fs"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// Journal is what a shutdown did.
type Journal struct {
	// Began is when the machine was to go down; Ended when all was done, zero
	// while it goes on and when the machine went down before.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Cancelled says that the shutdown was called off.
	Cancelled bool `json:"cancelled,omitempty"`
	// Pods are those that were stopped, in that order.
	Pods []Stopped `json:"pods,omitempty"`
}

// Stopped is a pod that a shutdown ended.
type Stopped struct {
	UID       types.UID     `json:"uid"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Grace     time.Duration `json:"grace"` // nanoseconds
	At        time.Time     `json:"at"`
	// Gone says that it was gone with its volumes in the time of its group.
	Gone bool `json:"gone,omitempty"`
}

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// Load is the journal of the last shutdown of this node; a zero Began means that
// there was none.
func Load(path string) (Journal, error) {
	j, err := checkpoint.Load[Journal](path, format())
	if errors.Is(err, fs.ErrNotExist) {
		return Journal{}, nil
	}
	return j, err
}
