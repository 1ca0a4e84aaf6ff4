package test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
)

// awaitLimit waits until the kernel has this limit of CPU (µs in 100 ms) or memory (bytes) for a container, or for
// the pod if the container is "-".
func (h *harness) awaitLimit(ts *testscript.TestScript, args []string) {
	p, err := clientOf(ts).Pod(key(args[0])).Get(context.Background())
	ts.Check(err)
	id := ""
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.Name == args[1] {
			_, id, _ = strings.Cut(s.ContainerID, "://")
		}
	}
	if id == "" && args[1] != "-" {
		ts.Fatalf("container %s does not run", args[1])
	}
	files := map[string][]string{"cpu": {"cpu/%/cpu.cfs_quota_us", "%/cpu.max"},
		"memory": {"memory/%/memory.limit_in_bytes", "%/memory.max"}}[args[2]]
	eventually(ts, func() (bool, any) {
		var seen []string
		for _, file := range files {
			for _, level := range []string{"", "burstable", "besteffort"} {
				dir := filepath.Join("berth-test-*/kubepods", level, "pod"+string(p.UID), id)
				paths, err := filepath.Glob("/sys/fs/cgroup/" + strings.Replace(file, "%", dir, 1))
				ts.Check(err)
				for _, path := range paths {
					if text, err := os.ReadFile(path); err == nil {
						seen = append(seen, strings.Fields(string(text))[0])
					}
				}
			}
		}
		return slices.Equal(seen, args[3:]), seen
	})
}

// awaitCalm waits until no resize of a pod is pending or in progress.
func (h *harness) awaitCalm(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		p, err := clientOf(ts).Pod(key(args[0])).Get(context.Background())
		ts.Check(err)
		return !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
		}), p.Status.Conditions
	})
}
