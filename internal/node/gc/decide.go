package gc

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// work is what is to be removed of one pod.
type work struct {
	Containers []pod.ContainerStatus
	Sandboxes  []string
}

// Policy bounds the dead instances of containers of live pods. The newest
// instance of each container stays in any case.
type Policy struct {
	// MinAge is for how long after its creation one stays at least.
	MinAge time.Duration
	// PerContainer is how many stay of one container, Total how many on the node.
	// Less than 0: no bound.
	PerContainer, Total int
}

// decide says what of a pod is garbage, and when there is more to come: what is
// too young now; zero: never. Of a pod that is gone it is whatever does not run.
// Otherwise the newest instance of each container stays, whatever its state, so
// that the plan has something to go on from; of the dead ones as many as the policy
// says. The newest sandbox stays, and those that a container is still in: their
// removal would take it along. surplus are containers that are too many for the node.
func decide(o *pod.Observed, gone bool, p Policy, surplus map[string]bool, now time.Time) (w work, next time.Time) {
	if o == nil {
		return w, next
	}
	seen, dead := map[string]bool{}, map[string]int{}
	used := map[string]bool{}
	for _, c := range o.Containers { // newest first
		newest := !seen[c.Name]
		seen[c.Name] = true
		var garbage bool
		switch c.State {
		case pod.StateExited:
			dead[c.Name]++
			garbage = gone || !newest && (p.PerContainer >= 0 && dead[c.Name] > p.PerContainer || surplus[c.ID])
		case pod.StateCreated: // the newest is about to start: it is not one of the dead
			garbage = gone || !newest
		case pod.StateRunning, pod.StateUnknown: // the worker's to end
		}
		if old := c.CreatedAt.Add(p.MinAge); garbage && !gone && p.MinAge > 0 && now.Before(old) {
			garbage, next = false, sooner(next, old)
		}
		if garbage {
			w.Containers = append(w.Containers, c)
			continue
		}
		used[c.SandboxID] = true
	}
	for i, s := range o.Sandboxes { // newest first
		if !s.Ready && !used[s.ID] && (gone || i > 0) {
			w.Sandboxes = append(w.Sandboxes, s.ID)
		}
	}
	return w, next
}

// sooner is the earlier of two times, of which a may be none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// surplus are the dead containers that are too many for the node, by their pods:
// each container is left as many as every other, at least one, and when these are
// too many still the oldest go. The newest instance of each is not among them.
func surplus(pods []*pod.Observed, p Policy) map[types.UID]map[string]bool {
	if p.Total < 0 {
		return nil
	}
	type candidate struct {
		pod.ContainerStatus
		uid  types.UID
		rank int // among the dead of its container, newest first
	}
	var left []candidate
	total, units := 0, 0
	for _, o := range pods {
		seen, dead := map[string]bool{}, map[string]int{}
		for _, c := range o.Containers {
			newest := !seen[c.Name]
			seen[c.Name] = true
			if c.State != pod.StateExited || p.PerContainer >= 0 && dead[c.Name] >= p.PerContainer && !newest {
				continue
			}
			if dead[c.Name]++; dead[c.Name] == 1 {
				units++
			}
			if total++; !newest {
				left = append(left, candidate{c, o.UID, dead[c.Name]})
			}
		}
	}
	each := max(p.Total/max(units, 1), 1)
	slices.SortStableFunc(left, func(a, b candidate) int { // what goes first is first
		if over, than := a.rank > each, b.rank > each; over != than {
			if over {
				return -1
			}
			return 1
		}
		return a.CreatedAt.Compare(b.CreatedAt)
	})
	all := map[types.UID]map[string]bool{}
	for _, c := range left[:min(max(total-p.Total, 0), len(left))] {
		if all[c.uid] == nil {
			all[c.uid] = map[string]bool{}
		}
		all[c.uid][c.ID] = true
	}
	return all
}

// newest are the restart counts of the last instances by container name.
func newest(o *pod.Observed) map[string]int {
	counts := map[string]int{}
	if o != nil {
		for _, c := range o.Containers {
			counts[c.Name] = max(counts[c.Name], c.RestartCount)
		}
	}
	return counts
}

// instances are those of one container whose logs are decided about.
type instances struct {
	newest int
	// held are in the runtime, and stay; removed go now.
	held, removed map[int]bool
}

// staleLogs are those of the files in a container's log directory that belong to
// earlier instances of which nothing is left and that are more than keep before the
// newest, or that go now if keep is less than 0: no bound.
func staleLogs(names []string, in instances, keep int) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		n, ok := instanceOf(name)
		if !ok || n >= in.newest || in.held[n] {
			return true
		}
		return keep >= 0 && n >= in.newest-keep || keep < 0 && !in.removed[n]
	})
}

// logsOf says which instances of each container are there, of those that have a new one
// since was or of which some go.
func logsOf(o *pod.Observed, w work, was, counts map[string]int) map[string]instances {
	all := map[string]instances{}
	for name, count := range counts {
		all[name] = instances{count, map[int]bool{}, map[int]bool{}}
	}
	changed := map[string]bool{}
	for _, c := range o.ContainersOf() {
		if in, ok := all[c.Name]; ok {
			in.held[c.RestartCount] = true
		}
	}
	for _, c := range w.Containers {
		if in, ok := all[c.Name]; ok {
			delete(in.held, c.RestartCount)
			in.removed[c.RestartCount], changed[c.Name] = true, true
		}
	}
	maps.DeleteFunc(all, func(name string, in instances) bool {
		last, ok := was[name]
		return ok && last == in.newest && !changed[name]
	})
	return all
}

// instanceOf reads the instance from the name of a log, rotated or not: 2.log,
// 2.log.20260301-120000.gz.
func instanceOf(name string) (int, bool) {
	digits, rest, ok := strings.Cut(name, ".log")
	if !ok || rest != "" && !strings.HasPrefix(rest, ".") {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// dangling says that a link, whose target's directory holds files, leads to no
// log. One that is just being rotated has the files it was renamed to.
func dangling(target string, files []string) bool {
	return !slices.ContainsFunc(files, func(f string) bool { return f == target || strings.HasPrefix(f, target+".") })
}
