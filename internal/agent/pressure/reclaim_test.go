package pressure

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/pod/steps/image/garbage"
	"github.com/berth-run/berth/internal/record/event"
)

// actions records which garbage was removed, and the events about it.
type actions []string

func (a *actions) RemoveDead(context.Context, map[types.UID]bool) ([]string, error) {
	*a = append(*a, "containers")
	return []string{"c1", "c2"}, nil
}

func (a *actions) Reclaim(_ context.Context, cause string) ([]garbage.Image, error) {
	*a = append(*a, "images, because "+cause)
	return nil, nil
}

func (a *actions) Event(_ corev1.ObjectReference, _, why, format string, args ...any) {
	*a = append(*a, why+": "+fmt.Sprintf(format, args...))
}

// Only garbage on the file system that is short is removed: first dead containers, then images.
func TestReclaimOfOneFileSystem(t *testing.T) {
	for name, test := range map[string]struct {
		layout eviction.Disks
		want   map[eviction.Signal][]string
	}{
		"one file system": {eviction.Disks{Node: "a", Image: "a", Container: "a"}, map[eviction.Signal][]string{
			eviction.NodeFsAvailable: {"containers", "images"}, eviction.ImageFsInodesFree: {"containers", "images"}}},
		"images and layers apart": {eviction.Disks{Node: "a", Image: "b", Container: "b"},
			map[eviction.Signal][]string{
				eviction.NodeFsAvailable: nil, eviction.ImageFsAvailable: {"containers", "images"}}},
		"images apart": {eviction.Disks{Node: "a", Image: "b", Container: "a"}, map[eviction.Signal][]string{
			eviction.NodeFsAvailable: {"containers"}, eviction.ContainerFsAvailable: {"containers"},
			eviction.ImageFsAvailable: {"images"}}},
		"three file systems": {eviction.Disks{Node: "a", Image: "b", Container: "c"}, map[eviction.Signal][]string{
			eviction.NodeFsAvailable: nil, eviction.ContainerFsInodesFree: {"containers"},
			eviction.ImageFsAvailable: {"images"}}},
	} {
		for signal, want := range test.want {
			var got actions
			d := NewDisk(DiskOptions{Pods: New(Options{Observed: observed.New(), Node: event.NodeRef("n"), Events: &got,
				Log: slog.New(slog.DiscardHandler)}), Containers: &got, Images: &got})
			d.layout = test.layout
			// Less than half of the threshold is left, so that the result does not depend on space that becomes free.
			d.Reclaim(t.Context(), eviction.Crossing{Threshold: eviction.Threshold{Signal: signal}, Limit: 100})
			var full []string
			if slices.Contains(want, "containers") {
				full = append(full, "containers", "ContainersRemoved: removed 2 dead containers, because "+
					string(signal)+" is short")
			}
			if slices.Contains(want, "images") {
				full = append(full, "images, because "+string(signal)+" is short")
			}
			if diff := cmp.Diff(full, []string(got)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, signal, diff)
			}
		}
	}
}
