package shape

import (
	"fmt"
	"math"

	"github.com/berth-run/berth/internal/base/quantity"
)

const (
	ingress = "kubernetes.io/ingress-bandwidth"
	egress  = "kubernetes.io/egress-bandwidth"
	// least and most are the limits of Kubernetes for the annotations.
	least, most = 1_000, 1_000_000_000_000_000
)

// Limits are the limits of a pod in bits per second, 0 for none.
type Limits struct{ Ingress, Egress uint64 }

// Read reads the limits from the annotations of a pod.
func Read(annotations map[string]string) (l Limits, err error) {
	for _, a := range []struct {
		name string
		to   *uint64
	}{{ingress, &l.Ingress}, {egress, &l.Egress}} {
		text, ok := annotations[a.name]
		if !ok {
			continue
		}
		rate, err := quantity.Parse(text)
		if err != nil {
			return Limits{}, fmt.Errorf("annotation %s=%q: %w", a.name, text, err)
		}
		if rate.Value() < least || rate.Value() > most {
			return Limits{}, fmt.Errorf("annotation %s=%q: want 1k to 1P bits per second", a.name, text)
		}
		*a.to = uint64(rate.Value())
	}
	return l, nil
}

// bucket is the configuration of a token bucket filter, in bytes and bytes per second.
type bucket struct {
	rate         uint64
	burst, limit uint32
}

// bucketOf returns the filter for a rate in bits per second. The bucket holds the bytes of a tenth of a second. It
// holds at least two of the largest packets that the kernel does not segment (64 KiB). The queue holds what the rate
// allows in 25 ms more, as in the CNI plugin bandwidth. The plugin's bucket has 512 MiB under containerd: a limit would
// have no effect on most transfers.
func bucketOf(rate uint64) bucket {
	const (
		bitsPerByte        = 8
		leastBurst         = 128 << 10
		burstTime, latency = 10, 40 // parts of a second
	)
	b := bucket{rate: rate / bitsPerByte}
	b.burst = uint32(min(max(b.rate/burstTime, leastBurst), math.MaxUint32/2))
	b.limit = uint32(min(uint64(b.burst)+b.rate/latency, math.MaxUint32))
	return b
}
