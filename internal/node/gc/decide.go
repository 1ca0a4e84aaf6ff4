package gc

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// work lists the items to remove of one pod.
type work struct {
	Containers []pod.ContainerStatus
	Sandboxes  []string
}

// Policy limits the dead container instances of live pods. The newest instance of each container always stays.
type Policy struct {
	// MinAge is the minimum age of an instance before its removal.
	MinAge time.Duration
	// PerContainer is how many dead instances of one container stay, Total how many on the node. Below 0: no limit.
	PerContainer, Total int
}

// decide returns the garbage of a pod, and the time when more of it becomes old enough (zero: never).
//
// If the pod is gone, everything that does not run is garbage. Otherwise the newest instance of each container stays,
// whatever its state, because the plan continues from it. Of the dead instances as many stay as the policy says. The
// newest sandbox stays, and so does every sandbox that still has a container, because removing it would remove the
// container. surplus names containers that exceed the limit of the node.
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
		case pod.StateCreated: // the newest is about to start: it does not count as dead
			garbage = gone || !newest
		case pod.StateRunning, pod.StateUnknown: // only the worker ends these
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

// removedMessages names the containers of a live pod whose instances were removed, and says why.
func removedMessages(o *pod.Observed, w work, p Policy, surplus map[string]bool) (texts []string) {
	for _, c := range w.Containers {
		cause := fmt.Sprintf("the limit of dead instances for each container is %d", p.PerContainer)
		switch {
		case c.State == pod.StateCreated:
			cause = "they never ran"
		case surplus[c.ID]:
			cause = fmt.Sprintf("the limit of dead containers on the node is %d", p.Total)
		}
		text := fmt.Sprintf("removed earlier instances of container %s of pod %s/%s, because %s", c.Name, o.Namespace,
			o.Name, cause)
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// sooner returns the earlier time. A zero a counts as no time.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// surplus returns the dead containers that exceed the limit of the node, by pod. Each container may keep an equal
// share, at least one instance. If that is still too many, the oldest are surplus first. The newest instance of each
// container is never surplus.
func surplus(pods []*pod.Observed, p Policy) map[types.UID]map[string]bool {
	if p.Total < 0 {
		return nil
	}
	type candidate struct {
		pod.ContainerStatus
		uid  types.UID
		rank int // position among the dead instances of its container, newest first
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
	slices.SortStableFunc(left, func(a, b candidate) int { // the first to remove comes first
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

// newest returns the restart count of the newest instance by container name.
func newest(o *pod.Observed) map[string]int {
	counts := map[string]int{}
	if o != nil {
		for _, c := range o.Containers {
			counts[c.Name] = max(counts[c.Name], c.RestartCount)
		}
	}
	return counts
}

// instances describes the instances of one container to decide about their logs.
type instances struct {
	newest int
	// held instances exist in the runtime and stay; removed ones are being removed now.
	held, removed map[int]bool
}

// staleLogs returns the files in a container's log directory to remove. They belong to earlier instances that no longer
// exist. Files of the keep instances before the newest stay. If keep is below 0, only files of instances in removed go.
func staleLogs(names []string, in instances, keep int) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		n, ok := instanceOf(name)
		if !ok || n >= in.newest || in.held[n] {
			return true
		}
		return keep >= 0 && n >= in.newest-keep || keep < 0 && !in.removed[n]
	})
}

// logsOf returns the instances of the containers whose logs must be checked: containers with a new instance since was,
// or with instances being removed.
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

// instanceOf parses the instance number from the name of a log file, rotated or not: 2.log, 2.log.20260301-120000.gz.
func instanceOf(name string) (int, bool) {
	digits, rest, ok := strings.Cut(name, ".log")
	if !ok || rest != "" && !strings.HasPrefix(rest, ".") {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// dangling reports whether a link points to a log that no longer exists. files are in the directory of the target. A
// log that is just being rotated still has its renamed files.
func dangling(target string, files []string) bool {
	return !slices.ContainsFunc(files, func(f string) bool { return f == target || strings.HasPrefix(f, target+".") })
}
