package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/record/event"
)

// reportOverlaps reports in events and in the node's conditions when the addresses of pods overlap with another network
// of this machine.
func reportOverlaps(ctx context.Context, a *Agent) error {
	table := a.machine.engine.Overlaps()
	if table == nil {
		return nil
	}
	watcher := table.Watch()
	defer watcher.Stop()
	node := event.NodeRef(a.Config.NodeName)
	current := map[netip.Prefix]string{}
	for {
		changes, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if c.Deleted {
				delete(current, c.Key)
				a.records.events.Event(node, corev1.EventTypeNormal, "PodRangeFree",
					"pod addresses %s no longer overlap with %s", c.Key, c.Value)
				continue
			}
			current[c.Key] = c.Value
			a.records.events.Event(node, corev1.EventTypeWarning, "PodRangeOverlap",
				"pod addresses %s overlap with %s: one of the two networks is unreachable; next: set podCIDR to free "+
					"ranges and restart the agent, or change that network", c.Key, c.Value)
		}
		if conditions := a.demand.cluster.Conditions(); conditions != nil {
			conditions.Set(condition.PodRange, overlapText(current))
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
