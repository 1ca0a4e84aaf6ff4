package claim

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// FuzzBindings reads the bindings of claims. Every binding has a claim and a volume.
func FuzzBindings(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "claims.json", Version: 1,
		Seeds: []string{
			`[{"Claim":{"metadata":{"name":"c","namespace":"n"}},"Volume":{"metadata":{"name":"pvc-1"}},"Made":true,` +
				`"Owner":"u","Users":["u"],"Released":"2026-03-01T12:00:00Z"}]`,
			"[null]", "[{}]",
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			c := New(Config{Root: dir})
			err := c.Load()
			all := map[string]*Binding{}
			for name, b := range c.bindings {
				if b.Claim == nil || b.Volume == nil || name != (types.NamespacedName{Namespace: b.Claim.Namespace,
					Name: b.Claim.Name}) {
					t.Errorf("%s is bound as %+v", name, b)
				}
				all[name.String()] = b
			}
			return checkpointtest.Show(all), checkpointtest.Text(err)
		},
	})
}
