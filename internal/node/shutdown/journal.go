package shutdown

import (
	"errors"
	"io/fs"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// Journal records a shutdown.
type Journal struct {
	// Began is when the shutdown started. Ended is when all pods had ended; it is zero during the shutdown and if the
	// machine went down earlier.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Cancelled is true if the shutdown was cancelled.
	Cancelled bool `json:"cancelled,omitempty"`
	// Pods are the stopped pods in the order of their stop.
	Pods []Stopped `json:"pods,omitempty"`
}

// Stopped is a pod that a shutdown stopped.
type Stopped struct {
	UID       types.UID     `json:"uid"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Grace     time.Duration `json:"grace"` // nanoseconds
	At        time.Time     `json:"at"`
	// Gone is true if the pod and its volumes were gone within the time of its group.
	Gone bool `json:"gone,omitempty"`
}

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// Load reads the journal of the last shutdown of this node. Began is zero if there was none.
func Load(path string) (Journal, error) {
	j, err := checkpoint.Load[Journal](path, format())
	if errors.Is(err, fs.ErrNotExist) {
		return Journal{}, nil
	}
	return j, err
}
