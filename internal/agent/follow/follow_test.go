package follow

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/condition"
)

// record notes what the loops call.
type record []string

func (r *record) ObjectsChanged(keys map[object.Key]bool) { r.add("pods", keys) }
func (r *record) Changed(keys map[object.Key]bool)        { r.add("volumes", keys) }
func (r *record) MarkAll()                                { *r = append(*r, "statuses") }

func (r *record) add(what string, keys map[object.Key]bool) {
	for key := range keys {
		*r = append(*r, what+" "+key.Name)
	}
}

func (r *record) Event(_ corev1.ObjectReference, _, reason, format string, args ...any) {
	*r = append(*r, reason+" "+fmt.Sprintf(format, args...))
}

// during runs a loop while body runs, and fails if the loop does not end with its context.
func during(t *testing.T, run func(context.Context) error, body func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	synctest.Wait()
	body()
	synctest.Wait()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRunLocalWakesPodsThatWaitForAnObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got record
		table := store.New[object.Key, runtime.Object]()
		during(t, Objects{Local: table, Fleet: &got, Volumes: &got}.RunLocal, func() {
			table.Put(object.Key{Kind: object.ConfigMap, Name: "a"}, &corev1.ConfigMap{})
		})
		if diff := cmp.Diff(record{"pods a"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestRunClusterWakesPodsBeforeItUpdatesVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got record
		changed := wake.NewSet[object.Key]()
		during(t, Objects{Cluster: changed, Fleet: &got, Volumes: &got}.RunCluster, func() {
			changed.Add(object.Key{Kind: object.Secret, Name: "b"})
		})
		if diff := cmp.Diff(record{"pods b", "volumes b"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestAddressesUpdateTheNodeAndMarkStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got record
		changed, node := wake.New(), nodeobject.NewLatest("n1")
		during(t, Addresses{Changed: changed.C(), Node: node, Statuses: &got}.Run, changed.Wake)
		if diff := cmp.Diff(record{"statuses"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		select {
		case <-node.FactsChanged.C():
		default:
			t.Error("the Node object is not updated")
		}
	})
}

func TestOverlapsAreReportedUntilTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got record
		table, conditions := store.New[netip.Prefix, string](), condition.New()
		pods := netip.MustParsePrefix("10.85.0.0/16")
		problem := func() string { return conditions.Facts()[condition.PodRange].Problem }
		during(t, Overlaps{Table: table, Conditions: conditions, Events: &got}.Run, func() {
			table.Put(pods, "10.0.0.0/8 of eth0")
			synctest.Wait()
			if want := "pod addresses 10.85.0.0/16 overlap with 10.0.0.0/8 of eth0"; problem() != want {
				t.Errorf("condition %q, want %q", problem(), want)
			}
			table.Delete(pods)
		})
		want := record{
			"PodRangeOverlap pod addresses 10.85.0.0/16 overlap with 10.0.0.0/8 of eth0: one of the two networks is " +
				"unreachable; next: set podCIDR to free ranges and restart the agent, or change that network",
			"PodRangeFree pod addresses 10.85.0.0/16 no longer overlap with 10.0.0.0/8 of eth0",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if problem() != "" {
			t.Errorf("condition %q after the end of the overlap", problem())
		}
	})
}

func TestOverlapsNeedARuntimeThatReportsThem(t *testing.T) {
	if err := (Overlaps{}).Run(t.Context()); err != nil {
		t.Error(err)
	}
}
