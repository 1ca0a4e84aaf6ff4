package gc

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth/internal/pod"
)

// work is what is to be removed of one pod.
type work struct {
	Containers []pod.ContainerStatus
	Sandboxes  []string
}

// decide says what of a pod is garbage. Of a pod that is gone that is whatever
// does not run. Otherwise the newest instance of each container stays, whatever
// its state, so that the plan has something to go on from; of the dead ones keep
// stay. The newest sandbox stays, and those that a container is still in: their
// removal would take it along.
func decide(o *pod.Observed, gone bool, keep int) work {
	var w work
	if o == nil {
		return w
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
			garbage = gone || !newest && dead[c.Name] > keep
		case pod.StateCreated: // the newest is about to start: it is not one of the dead
			garbage = gone || !newest
		case pod.StateRunning, pod.StateUnknown: // the worker's to end
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
	return w
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

// staleLogs are those of the files in a container's log directory that belong to
// instances more than keep before the newest.
func staleLogs(names []string, newest, keep int) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		n, ok := instanceOf(name)
		return !ok || n >= newest-keep
	})
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
