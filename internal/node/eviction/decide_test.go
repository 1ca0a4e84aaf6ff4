package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestDecide goes through looks at one node, and compares each verdict.
func TestDecide(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := start.Add
	memory := Threshold{Signal: MemoryAvailable, Value: Amount{Quantity: 100}, Minimum: Amount{Quantity: 50}}
	soft := Threshold{Signal: MemoryAvailable, Value: Amount{Quantity: 200}, Grace: time.Minute}
	disk := Threshold{Signal: NodeFsAvailable, Value: Amount{Share: 0.25}}
	pids := Threshold{Signal: PIDAvailable, Value: Amount{Quantity: 10}}
	type look struct {
		after time.Duration
		seen  Observations
		want  Verdict
	}
	crossing := func(t Threshold, available, limit, shortfall int64) Crossing {
		return Crossing{Threshold: t, Seen: Observation{Available: available, Capacity: 1000}, Limit: limit,
			Shortfall: shortfall}
	}
	seen := func(signal Signal, available int64) Observations {
		return Observations{signal: {Available: available, Capacity: 1000}}
	}
	memoryShort := []corev1.NodeConditionType{corev1.NodeMemoryPressure}
	for name, test := range map[string]struct {
		thresholds []Threshold
		looks      []look
	}{
		"enough, and nothing seen": {
			thresholds: []Threshold{memory, disk},
			looks:      []look{{seen: seen(MemoryAvailable, 100)}, {seen: nil}}},
		"hard: acts at once, and until the minimum is free too": {
			thresholds: []Threshold{memory},
			looks: []look{
				{seen: seen(MemoryAvailable, 149)},
				{seen: seen(MemoryAvailable, 99), want: Verdict{Pressure: memoryShort,
					Crossings: []Crossing{crossing(memory, 99, 100, 51)}}},
				{seen: seen(MemoryAvailable, 149), want: Verdict{Pressure: memoryShort,
					Crossings: []Crossing{crossing(memory, 149, 100, 1)}}},
				{seen: seen(MemoryAvailable, 150), want: Verdict{Pressure: memoryShort, Next: at(5 * time.Minute)}},
				{after: 5*time.Minute - 1, seen: seen(MemoryAvailable, 150),
					want: Verdict{Pressure: memoryShort, Next: at(5 * time.Minute)}},
				{after: 5 * time.Minute, seen: seen(MemoryAvailable, 149)},
			}},
		"soft: acts after its grace period": {
			thresholds: []Threshold{soft},
			looks: []look{
				{seen: seen(MemoryAvailable, 199), want: Verdict{Pressure: memoryShort, Next: at(time.Minute)}},
				{after: 59 * time.Second, seen: seen(MemoryAvailable, 150),
					want: Verdict{Pressure: memoryShort, Next: at(time.Minute)}},
				{after: time.Minute, seen: seen(MemoryAvailable, 190),
					want: Verdict{Pressure: memoryShort, Crossings: []Crossing{crossing(soft, 190, 200, 10)}}},
			}},
		"soft: a moment with enough starts the grace period anew": {
			thresholds: []Threshold{soft},
			looks: []look{
				{seen: seen(MemoryAvailable, 199), want: Verdict{Pressure: memoryShort, Next: at(time.Minute)}},
				{after: 30 * time.Second, seen: seen(MemoryAvailable, 200),
					want: Verdict{Pressure: memoryShort, Next: at(5 * time.Minute)}},
				{after: time.Minute, seen: seen(MemoryAvailable, 199),
					want: Verdict{Pressure: memoryShort, Next: at(2 * time.Minute)}},
			}},
		"hard does not wait for soft, memory comes first": {
			thresholds: []Threshold{pids, disk, soft, memory},
			looks: []look{{
				seen: Observations{MemoryAvailable: {Available: 50, Capacity: 1000},
					NodeFsAvailable: {Available: 249, Capacity: 1000}, PIDAvailable: {Available: 0, Capacity: 1000}},
				want: Verdict{
					Pressure: []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure,
						corev1.NodePIDPressure},
					Crossings: []Crossing{crossing(memory, 50, 100, 100), crossing(disk, 249, 250, 1),
						crossing(pids, 0, 10, 10)},
					Next: at(time.Minute),
				}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var state State
			for i, l := range test.looks {
				var got Verdict
				state, got = Decide(test.thresholds, l.seen, state, 5*time.Minute, at(l.after))
				if diff := cmp.Diff(l.want, got, cmp.AllowUnexported(Amount{})); diff != "" {
					t.Errorf("look %d: %s", i, diff)
				}
			}
		})
	}
}

func TestAdmits(t *testing.T) {
	const refused = "The node had condition: [MemoryPressure]. "
	memory := []corev1.NodeConditionType{corev1.NodeMemoryPressure}
	both := []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure}
	for name, test := range map[string]struct {
		pressure            []corev1.NodeConditionType
		qos                 corev1.PodQOSClass
		critical, tolerates bool
		want                string
	}{
		"no pressure":                  {qos: corev1.PodQOSBestEffort},
		"memory: guaranteed":           {pressure: memory, qos: corev1.PodQOSGuaranteed},
		"memory: burstable":            {pressure: memory, qos: corev1.PodQOSBurstable},
		"memory: best effort":          {pressure: memory, qos: corev1.PodQOSBestEffort, want: refused},
		"memory: tolerant best effort": {pressure: memory, qos: corev1.PodQOSBestEffort, tolerates: true},
		"memory: critical best effort": {pressure: memory, qos: corev1.PodQOSBestEffort, critical: true},
		"disk: critical":               {pressure: both, qos: corev1.PodQOSBestEffort, critical: true},
		"disk: guaranteed": {pressure: both[:1], qos: corev1.PodQOSGuaranteed,
			want: "The node had condition: [DiskPressure]. "},
		"disk and memory: all tolerated": {pressure: both, qos: corev1.PodQOSBurstable, tolerates: true,
			want: "The node had condition: [DiskPressure MemoryPressure]. "},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Admits(test.pressure, test.qos, test.critical, test.tolerates)
			if got != test.want || ok != (test.want == "") {
				t.Errorf("%q, %v, want %q", got, ok, test.want)
			}
		})
	}
}
