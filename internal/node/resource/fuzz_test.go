package resource

import (
	"testing"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// FuzzLedger reads the allocation of a pod. Whatever is kept of it fits the machine.
func FuzzLedger(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "u1.json", Version: 1,
		Seeds: []string{
			`{"key":"u1","value":{"containers":{"app":{"cpus":"1-2","memory":[{"nodes":[0,3],"resource":"memory",` +
				`"size":1073741824}],"devices":{"example.com/gpu":["a"]}}},"pod":{"cpus":"1-3"}}}`,
			`{"key":"u1","value":{"containers":{"a":{"cpus":"0-4294967295"},"b":{"memory":[{"nodes":[64]}]}}}}`,
		},
		Read: func(_ *testing.T, dir string) (state, report string) {
			l := newLedger(dir, static(4))
			_, err := l.Load()
			held := l.All()
			for uid, a := range held {
				fits, why := l.node.fitting(Held{}, a)
				if why != nil || fits.IsEmpty() {
					panic("pod " + string(uid) + " holds what the machine does not have")
				}
			}
			return checkpointtest.Show(records(held)), checkpointtest.Text(err)
		},
	})
}

// records are allocations in the form of their files.
func records(held Held) map[string]record {
	all := map[string]record{}
	for uid, a := range held {
		all[string(uid)] = recordOf(a)
	}
	return all
}
