package resource

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/node/machine/machinetest"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Pods end in random order. Each release frees exactly the resources that this pod alone held, including after
// exchanges and early releases. At the end the node is as it was at first.
func TestReleaseRestores(t *testing.T) {
	for name, m := range machinetest.All(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(11, uint64(len(name))))
			n, dir := node(r, m), filepath.Join(t.TempDir(), "resources")
			n.Policy.CPUs, n.Policy.Memory, n.Policy.Topology.Policy = true, m.Nodes[0].Memory > 8<<30,
				topology.BestEffort
			l, probe := newLedger(dir, n), mix(r, "probe")
			shared := l.Shared()
			first, firstErr := Decide(n, nil, probe)
			for i := range 20 {
				p := mix(r, types.UID(fmt.Sprint(i)))
				a, err := Decide(n, l.All(), p)
				if err != nil {
					continue
				}
				if err := l.Commit(p.UID, a); err != nil {
					t.Fatal(err)
				}
				for _, c := range p.Spec.InitContainers {
					if err := l.ReleaseMemory(p.UID, c.Name); err != nil {
						t.Fatal(err)
					}
				}
			}
			uids := slices.Sorted(maps.Keys(l.All()))
			if len(uids) == 0 {
				t.Fatal("no pod got anything")
			}
			r.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
			for _, uid := range uids {
				before := l.All()
				if err := l.Release(uid); err != nil {
					t.Fatal(err)
				}
				if got, want := n.pool(l.All()).Free(),
					n.pool(before).Free().Union(before[uid].CPUs()); !got.Equals(want) {
					t.Fatalf("without pod %s CPUs %s are free, want %s", uid, got, want)
				}
			}
			if held := l.All(); len(held) > 0 || !l.Shared().Equals(shared) {
				t.Errorf("still held: %v; shared CPUs are %s, at first %s", held, l.Shared(), shared)
			}
			last, lastErr := Decide(n, l.All(), probe)
			if diff := cmp.Diff(first, last, sameSets); diff != "" || fmt.Sprint(firstErr) != fmt.Sprint(lastErr) {
				t.Errorf("a pod gets something else than at first (-at first +at last):\n%s%v, %v", diff, firstErr,
					lastErr)
			}
			if files, _ := os.ReadDir(dir); len(files) > 0 {
				t.Errorf("files were left behind: %v", files)
			}
		})
	}
}
