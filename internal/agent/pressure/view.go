package pressure

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/node/eviction"
)

// View shows how far the node is from its thresholds, and which pods would end first. It changes nothing.
type View struct {
	// Memory is the evictor for memory and processes.
	Memory *eviction.Evictor
	Pods   *Pods
	Disk   *Disk
}

// Standings looks at all signals that have a threshold. The file systems are missing until the runtime has named them.
// The error says why others are.
func (v View) Standings() ([]eviction.Standing, error) {
	all, err := v.Memory.Standings()
	if disk := v.Disk.evictor.Load(); disk != nil {
		more, diskErr := disk.Standings()
		return append(all, more...), errors.Join(err, diskErr)
	}
	if len(v.Disk.o.Policy.Of(corev1.NodeDiskPressure).Thresholds) > 0 {
		err = errors.Join(err, errors.New("the runtime has not named its file systems"))
	}
	return all, err
}

// Orders measures the pods and returns the order of their eviction for each of the signals.
func (v View) Orders(ctx context.Context, all []eviction.Standing) (orders []eviction.Order) {
	for _, s := range all {
		candidates := v.Pods.Candidates
		if s.Signal.Condition() == corev1.NodeDiskPressure {
			candidates = v.Disk.measured
		}
		orders = append(orders, s.Order(candidates(ctx, s.Signal), time.Now()))
	}
	return orders
}
