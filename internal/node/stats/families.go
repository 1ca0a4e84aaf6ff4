package stats

import (
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// families collects one scrape. It does not use a registry, which would create and check a description for each series:
// a full node has thousands, and all are known to be well formed.
type families map[string]*dto.MetricFamily

// labels of a series, sorted by name.
type labels []*dto.LabelPair

// labelled returns labels from names and values in turn.
func labelled(pairs ...string) labels {
	l := make(labels, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	slices.SortFunc(l, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return l
}

// with returns l with further names and values. It does not change l.
func (l labels) with(pairs ...string) labels {
	if len(pairs) == 0 {
		return l
	}
	all := append(labelled(pairs...), l...)
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// series describes the samples of a family.
type series struct {
	name, help string
	kind       dto.MetricType
}

func counter(name, help string) series { return series{name, help, dto.MetricType_COUNTER} }
func gauge(name, help string) series   { return series{name, help, dto.MetricType_GAUGE} }

// add adds a sample without a timestamp: it belongs to the time of the scrape.
func (f families) add(s series, l labels, v float64) *dto.Metric {
	family := f[s.name]
	if family == nil {
		family = &dto.MetricFamily{Name: &s.name, Help: &s.help, Type: &s.kind}
		f[s.name] = family
	}
	m := &dto.Metric{Label: l}
	if s.kind == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &v}
	} else {
		m.Gauge = &dto.Gauge{Value: &v}
	}
	family.Metric = append(family.Metric, m)
	return m
}

// addAt adds a sample with a timestamp.
func (f families) addAt(s series, l labels, v float64, at time.Time) {
	f.add(s, l, v).TimestampMs = new(at.UnixMilli())
}

// list returns the families in the form and order of a Gatherer.
func (f families) list() []*dto.MetricFamily {
	all := make([]*dto.MetricFamily, 0, len(f))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		all = append(all, f[name])
	}
	return all
}
