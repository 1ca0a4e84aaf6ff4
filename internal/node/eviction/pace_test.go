package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestNextLook(t *testing.T) {
	const gi = 1 << 30
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hard := Threshold{Signal: MemoryAvailable, Value: Amount{Quantity: gi}}
	soft := Threshold{Signal: MemoryAvailable, Value: Amount{Quantity: 2 * gi}, Grace: time.Minute}
	look := func(available int64, after time.Duration) Observations {
		return Observations{MemoryAvailable: {Available: available, Capacity: 64 * gi, At: start.Add(after)}}
	}
	for name, test := range map[string]struct {
		before, seen Observations
		notified     bool
		want         time.Duration
	}{
		"far, notified by the kernel": {seen: look(9*gi, 0), notified: true, want: latestLook},
		"far, not notified":           {seen: look(12*gi, 0), want: 5 * time.Second},
		"near, not notified":          {seen: look(2*gi+gi/4, 0), want: 125 * time.Millisecond},
		"between the thresholds":      {seen: look(3*gi/2, 0), want: 250 * time.Millisecond},
		"falls by 1 Gi/s, notified": {before: look(7*gi, 0), seen: look(6*gi, time.Second), notified: true,
			want: 2 * time.Second},
		"falls by 10 Gi/s, not notified": {before: look(16*gi, 0), seen: look(6*gi, time.Second),
			want: 200 * time.Millisecond},
		"rises, notified": {before: look(5*gi, 0), seen: look(6*gi, time.Second), notified: true,
			want: latestLook},
		"at the threshold":     {seen: look(2*gi+1, 0), want: soonestLook},
		"below all thresholds": {seen: look(gi/2, 0), want: latestLook},
		"not observed":         {want: latestLook},
	} {
		got := NextLook([]Threshold{hard, soft}, test.before, test.seen, func(Signal) bool { return !test.notified })
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	limits := nextLimits([]Threshold{hard, soft}, look(2*gi, 0))
	if diff := cmp.Diff(map[Signal]int64{MemoryAvailable: gi}, limits); diff != "" {
		t.Error(diff)
	}
}

// TestChoose counts on pods that end already, for as long as they may still free memory in time.
func TestChoose(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hard := Crossing{Threshold: Threshold{Signal: MemoryAvailable, Value: Amount{Quantity: 100}}, Shortfall: 100}
	soft := hard
	soft.Threshold.Grace = time.Minute
	running := Candidate{Pod: aPod("running"), Known: true, Usage: 80}
	small := Candidate{Pod: aPod("small"), Known: true, Usage: 30}
	ends := func(in time.Duration) Candidate {
		return Candidate{Pod: aPod("ends"), Known: true, Usage: 90, EndsBy: now.Add(in)}
	}
	for name, test := range map[string]struct {
		crossing Crossing
		all      []Candidate
		want     []string
	}{
		"none ends":                 {hard, []Candidate{small, running}, []string{"running", "small"}},
		"one ends at once":          {hard, []Candidate{small, running, ends(HardGrace)}, []string{"running"}},
		"one has run over its time": {hard, []Candidate{small, running, ends(-overdue)}, []string{"running"}},
		"one does not end": {hard, []Candidate{small, running, ends(-overdue - 1)},
			[]string{"running", "small"}},
		"hard: one ends late": {hard, []Candidate{small, running, ends(time.Minute)},
			[]string{"ends", "running"}},
		"soft: one ends late": {soft, []Candidate{small, running, ends(time.Minute)}, []string{"running"}},
		"a pod that uses nothing stays": {hard, []Candidate{{Pod: aPod("idle"), Known: true}, running},
			[]string{"running"}},
	} {
		if diff := cmp.Diff(test.want, names(Choose(test.crossing, test.all, now))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestGrace(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(30))}}
	for name, test := range map[string]struct {
		threshold Threshold
		pod       *corev1.Pod
		limit     time.Duration
		want      time.Duration
	}{
		"hard, memory":    {Threshold{Signal: MemoryAvailable}, p, time.Minute, 0},
		"hard, pids":      {Threshold{Signal: PIDAvailable}, p, time.Minute, 0},
		"hard, disk":      {Threshold{Signal: NodeFsAvailable}, p, time.Minute, HardGrace},
		"soft, own":       {Threshold{Signal: MemoryAvailable, Grace: 1}, p, time.Minute, 30 * time.Second},
		"soft, the limit": {Threshold{Signal: MemoryAvailable, Grace: 1}, p, time.Second, time.Second},
		"soft, none of own": {Threshold{Signal: NodeFsAvailable, Grace: 1}, &corev1.Pod{},
			7 * time.Second, 7 * time.Second},
		"soft, the default": {Threshold{Signal: MemoryAvailable, Grace: 1}, p, 0, 0},
	} {
		if got := Grace(test.threshold, test.pod, test.limit); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
