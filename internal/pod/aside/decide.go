package aside

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/crash"
)

// Delays before the next try after a panic. They double with each panic of the pod. A pod without a panic for
// calmAfter starts over.
const (
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
	calmAfter  = 2 * maxDelay
)

// A pod is set aside at the agent's start when panics about it have ended crashesPerWindow agents within crashWindow.
const (
	crashesPerWindow = 3
	crashWindow      = time.Minute
)

// Delays before the next try of a pod that was set aside at the agent's start, and whose next try may end this agent.
const (
	firstCrashDelay = time.Minute
	maxCrashDelay   = time.Hour
)

// after returns the number of panics in a row and the time of the next try, after one more panic at now.
func after(count int, last, now time.Time) (panics int, until time.Time) {
	if now.Sub(last) > calmAfter {
		count = 0
	}
	return count + 1, now.Add(retry.Delay(firstDelay, maxDelay, count+1))
}

// suspect is a pod that is set aside at the start of the agent.
type suspect struct {
	subject pod.Subject
	crashes int
	last    crash.Report
	until   time.Time
}

// suspects returns the pods to set aside because of the ends of earlier agents. Each end after the first
// crashesPerWindow doubles the delay.
func suspects(reports []crash.Report, now time.Time) (all []suspect) {
	byPod := map[types.UID][]crash.Report{}
	subjects := map[types.UID]pod.Subject{}
	for _, r := range reports {
		if s, ok := pod.ParseSubject(r.Subject); ok {
			byPod[s.UID], subjects[s.UID] = append(byPod[s.UID], r), s
		}
	}
	for uid, list := range byPod {
		slices.SortFunc(list, func(a, b crash.Report) int { return a.Time.Compare(b.Time) })
		first := -1 // the index of the end that completed the window
		for i := crashesPerWindow - 1; i < len(list) && first < 0; i++ {
			if list[i].Time.Sub(list[i-crashesPerWindow+1].Time) <= crashWindow {
				first = i
			}
		}
		if first < 0 {
			continue
		}
		last := list[len(list)-1]
		until := last.Time.Add(retry.Delay(firstCrashDelay, maxCrashDelay, len(list)-first))
		if now.Before(until) {
			all = append(all, suspect{subject: subjects[uid], crashes: len(list), last: last, until: until})
		}
	}
	slices.SortFunc(all, func(a, b suspect) int { return cmp.Compare(a.subject.UID, b.subject.UID) })
	return all
}
