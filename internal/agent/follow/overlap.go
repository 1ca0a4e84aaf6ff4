package follow

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/record/event"
)

// Overlaps are the ranges of pod addresses that overlap with another network of the machine.
type Overlaps struct {
	// Table has the other network of each range. nil: nothing reports overlaps.
	Table *store.Table[netip.Prefix, string]
	Node  corev1.ObjectReference
	// Conditions of the node; nil without a cluster.
	Conditions *condition.Table
	Events     event.Sink
}

// Run reports each overlap and its end in an event, and all of them in a condition of the node.
func (o Overlaps) Run(ctx context.Context) error {
	if o.Table == nil {
		return nil
	}
	watcher := o.Table.Watch()
	defer watcher.Stop()
	current := map[netip.Prefix]string{}
	for {
		changes, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if c.Deleted {
				delete(current, c.Key)
				o.Events.Event(o.Node, corev1.EventTypeNormal, "PodRangeFree",
					"pod addresses %s no longer overlap with %s", c.Key, c.Value)
				continue
			}
			current[c.Key] = c.Value
			o.Events.Event(o.Node, corev1.EventTypeWarning, "PodRangeOverlap",
				"pod addresses %s overlap with %s: one of the two networks is unreachable; next: set podCIDR to free "+
					"ranges and restart the agent, or change that network", c.Key, c.Value)
		}
		if o.Conditions != nil {
			o.Conditions.Set(condition.PodRange, overlapText(current))
		}
	}
}

// overlapText describes all overlaps. It is empty if there is none.
func overlapText(overlaps map[netip.Prefix]string) string {
	var texts []string
	for _, pods := range slices.SortedFunc(maps.Keys(overlaps), netip.Prefix.Compare) {
		texts = append(texts, fmt.Sprintf("pod addresses %s overlap with %s", pods, overlaps[pods]))
	}
	return strings.Join(texts, ", ")
}
