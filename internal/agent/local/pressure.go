package local

import (
	"context"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/node/eviction"
)

// Evictions shows the signals of eviction, and the pods in their order of eviction.
type Evictions interface {
	Standings() ([]eviction.Standing, error)
	Orders(ctx context.Context, all []eviction.Standing) []eviction.Order
}

// Pressure implements nodeinfo.Node.
func (x Node) Pressure(ctx context.Context, orders bool) api.Pressure {
	p := api.Pressure{TypeMeta: api.Type("Pressure"), Signals: []api.Signal{}}
	all, err := x.Evictions.Standings()
	if err != nil {
		p.Problem = err.Error()
	}
	for _, s := range all {
		p.Signals = append(p.Signals, signalOf(s))
	}
	if orders {
		p.Orders = ordersOf(x.Evictions.Orders(ctx, all))
	}
	return p
}

func signalOf(s eviction.Standing) api.Signal {
	one := api.Signal{Name: string(s.Signal), Available: s.Seen.Available, Capacity: s.Seen.Capacity}
	if !s.Since.IsZero() {
		one.ChangePerSecond = new(s.Trend)
	}
	for _, limit := range s.Limits {
		t := api.Threshold{Limit: limit.Amount, Distance: s.Seen.Available - limit.Amount}
		if !limit.Hard() {
			t.GracePeriod = &metav1.Duration{Duration: limit.Grace}
		}
		one.Thresholds = append(one.Thresholds, t)
	}
	return one
}

// ordersOf joins the signals whose orders are the same.
func ordersOf(all []eviction.Order) (orders []api.EvictionOrder) {
	for _, o := range all {
		one := api.EvictionOrder{Signals: []string{string(o.Signal)}, Pods: []api.EvictionCandidate{}}
		for _, c := range slices.Concat(o.Ranked, o.Critical) {
			candidate := api.EvictionCandidate{Namespace: c.Pod.Namespace, Name: c.Pod.Name, Priority: c.Priority,
				Request: c.Request, Critical: c.Critical, Ending: !c.EndsBy.IsZero(),
				Victim: slices.ContainsFunc(o.Victims,
					func(v eviction.Candidate) bool { return v.Pod.UID == c.Pod.UID })}
			if c.Known {
				candidate.Usage = new(c.Usage)
			}
			one.Pods = append(one.Pods, candidate)
		}
		last := len(orders) - 1
		if last >= 0 && reflect.DeepEqual(orders[last].Pods, one.Pods) {
			orders[last].Signals = append(orders[last].Signals, string(o.Signal))
			continue
		}
		orders = append(orders, one)
	}
	return orders
}
