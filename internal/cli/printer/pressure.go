package printer

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/terminal"
	"github.com/berth-run/berth/internal/node/eviction"
)

// Size writes a number of bytes with a binary unit, with one digit behind the point below 10.
func Size(bytes int64) string {
	value, unit := float64(bytes), ""
	for _, next := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if math.Abs(value) < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	if math.Abs(value) < 10 && unit != "" {
		return fmt.Sprintf("%.1f%s", value, unit)
	}
	return fmt.Sprintf("%.0f%s", value, unit)
}

// amount writes an amount of what a signal counts: bytes, inodes or processes.
func amount(signal string, v int64) string {
	if r := eviction.Signal(signal).Resource(); r == eviction.Inodes || r == eviction.PIDs {
		return strconv.FormatInt(v, 10)
	}
	return Size(v)
}

// Signals writes a table of the signals of eviction, with their thresholds, their distance from these and their trend.
func Signals(w io.Writer, p *api.Pressure) error { return signals(w, p, terminal.Of(w).Color) }

func signals(w io.Writer, p *api.Pressure, color bool) error {
	t := NewTable(w, "SIGNAL", "AVAILABLE", "THRESHOLD", "DISTANCE", "TREND")
	t.Color(color)
	t.StyleText("DISTANCE", distanceStyle)
	t.StyleText("TREND", trendStyle)
	for _, s := range p.Signals {
		for i, threshold := range s.Thresholds {
			name, available := s.Name, amount(s.Name, s.Available)
			if i > 0 {
				name, available = "", ""
			}
			kind := "hard " + amount(s.Name, threshold.Limit)
			if grace := threshold.GracePeriod; grace != nil {
				kind = "soft " + amount(s.Name, threshold.Limit) + " for " + duration.HumanDuration(grace.Duration)
			}
			t.Row(name, available, kind, amount(s.Name, threshold.Distance), trend(&s, threshold))
		}
	}
	if p.Problem != "" {
		defer fmt.Fprintf(w, "Some signals are missing: %s.\n", p.Problem)
	}
	return t.Flush()
}

// reachedIn precedes the time until a signal reaches a threshold.
const reachedIn = ", reached in "

// trend says how a signal changes, and when it would reach a threshold at this speed.
func trend(s *api.Signal, t api.Threshold) string {
	if s.ChangePerSecond == nil {
		return "-"
	}
	speed := *s.ChangePerSecond
	// What would take more than a day to use up everything is noise.
	if math.Abs(speed)*(24*time.Hour).Seconds() < float64(s.Capacity) {
		return "steady"
	}
	text := "rising"
	if speed < 0 {
		text = "falling"
	}
	text += " " + amount(s.Name, int64(math.Ceil(math.Abs(speed)))) + "/s"
	if left := float64(t.Distance) / -speed; speed < 0 && t.Distance > 0 {
		text += reachedIn + duration.HumanDuration(time.Duration(left*float64(time.Second)))
	}
	return text
}

// EvictionOrders writes the orders of eviction.
func EvictionOrders(w io.Writer, p *api.Pressure) error {
	for _, o := range p.Orders {
		fmt.Fprintf(w, "\nOrder for %s:\n", strings.Join(o.Signals, ", "))
		if len(o.Pods) == 0 {
			fmt.Fprintln(w, "no pod runs")
			continue
		}
		signal := o.Signals[0]
		t := NewTable(w, "POD", "PRIORITY", "USES", "REQUESTS", "ABOVE", "NOTE")
		for _, c := range o.Pods {
			uses, above := "?", "?"
			if c.Usage != nil {
				uses, above = amount(signal, *c.Usage), amount(signal, max(0, *c.Usage-c.Request))
			}
			t.Row(c.Namespace+"/"+c.Name, strconv.Itoa(int(c.Priority)), uses, cmp.Or(amount(signal, c.Request), "-"),
				above, note(c))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func note(c api.EvictionCandidate) string {
	switch {
	case c.Critical:
		return "critical: never evicted"
	case c.Ending:
		return "ends already"
	case c.Victim:
		return "would be evicted now"
	}
	return ""
}
