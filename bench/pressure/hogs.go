package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/node/stats"
)

// A hog takes memory at hogRate bytes a second until it is evicted, or until all pods together use hogLimit and the
// kernel ends it. The threshold is the kubelet's default. The limit keeps the machine itself from running short.
const (
	hogRate      = 200_000_000
	hogThreshold = 100 << 20
	hogLimit     = 768 << 20
	// slack is how many bytes before the threshold the crossing may be seen. The kernel accounts memory in batches for
	// each CPU, and the hog's program grows a little too. It is 10 ms at hogRate.
	slack = 2 << 20
)

// hogs has the results of all hogs.
type hogs struct {
	// kills has the time from the crossing of the threshold to the last step of each hog that the agent evicted.
	kills []time.Duration
	// oomKilled is how many hogs the kernel ended first.
	oomKilled int
}

// hunt starts hogs one after the other on an agent whose pods may use hogLimit together. root is its directory.
func hunt(ctx context.Context, root string, count int) (h hogs, err error) {
	total, err := totalMemory()
	if err != nil {
		return h, err
	}
	agent, err := side.StartBerthWith(ctx, root, fmt.Sprintf("evictionHard: {memory.available: \"%d\"}\n"+
		"evictionPressureTransitionPeriod: 1s\nsystemReserved: {memory: \"%d\"}\n", hogThreshold, total-hogLimit))
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, agent.Close()) }()
	agent.Suffix = "" // the pods are applied
	for i := range count {
		took, evicted, err := hog(ctx, agent, fmt.Sprintf("hog-%d", i))
		if err != nil {
			return h, err
		}
		if !evicted {
			h.oomKilled++
			continue
		}
		h.kills = append(h.kills, took)
	}
	return h, nil
}

// hog runs one hog to its end. It returns the time from the crossing of the threshold to the last step of the hog, and
// whether the agent has ended it.
func hog(ctx context.Context, agent *side.Berth, name string) (took time.Duration, evicted bool, err error) {
	// A request for CPU lets the pod start while the condition of the previous eviction still holds.
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  restartPolicy: Never
  volumes: [{name: stamps, hostPath: {path: %[2]s}}]
  containers:
  - name: app
    image: example.com/workload:1
    args: [until, /stamps/%[1]s-go, then, swell, "%[3]d", "%[4]d", /stamps/%[1]s, then, sleep]
    volumeMounts: [{name: stamps, mountPath: /stamps}]
    resources: {requests: {cpu: 1m}}
`, name, agent.Stamps, 2*hogLimit, hogRate)
	if _, err := agent.Client.Apply(ctx, []byte(manifest), client.Apply{Namespace: side.Namespace}); err != nil {
		return 0, false, err
	}
	if _, _, err := agent.Container(ctx, name); err != nil {
		return 0, false, err
	}
	before, err := stats.MemoryOf(podsGroup())
	if err != nil {
		return 0, false, fmt.Errorf("read the memory of all pods: %w", err)
	}
	if err := os.WriteFile(filepath.Join(agent.Stamps, name+"-go"), nil, 0o644); err != nil {
		return 0, false, err
	}
	if evicted, err = ended(ctx, agent.Client, name); err != nil {
		return 0, false, err
	}
	took, err = afterCrossing(filepath.Join(agent.Stamps, name), before.Limit-hogThreshold-before.WorkingSet)
	key := types.NamespacedName{Namespace: side.Namespace, Name: name}
	_, deleteErr := agent.Client.Pod(key).Delete(ctx, "", nil)
	return took, evicted, errors.Join(err, deleteErr)
}

// ended waits until the container of a pod has ended and the agent has reported how. If the container was OOMKilled,
// the kernel was first.
func ended(ctx context.Context, c *client.Client, name string) (evicted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, side.Patience)
	defer cancel()
	for change, err := range c.WatchPods(ctx, client.Select{Namespace: side.Namespace}) {
		if err != nil {
			return false, err
		}
		p := change.Object
		if change.Synced || p.Name != name || p.Status.Phase != corev1.PodFailed {
			continue
		}
		for _, s := range p.Status.ContainerStatuses {
			if t := s.State.Terminated; t != nil {
				return p.Status.Reason == "Evicted" && t.Reason != "OOMKilled", nil
			}
		}
	}
	return false, fmt.Errorf("pod %s has not ended: %w", name, ctx.Err())
}

// afterCrossing returns the time from a hog's first step with so many bytes to its last step. steps is the file with
// its steps.
func afterCrossing(steps string, bytes int64) (time.Duration, error) {
	file, err := os.Open(steps)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var crossed, at, taken int64
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if _, err := fmt.Sscan(lines.Text(), &at, &taken); err != nil {
			return 0, fmt.Errorf("read %s: %w", steps, err)
		}
		if crossed == 0 && taken >= bytes {
			crossed = at
		}
	}
	if crossed == 0 && taken >= bytes-slack {
		crossed = at // it was killed at its next step
	}
	if crossed == 0 {
		return 0, fmt.Errorf("the hog ended after %d bytes, before the threshold at %d", taken, bytes)
	}
	return time.Duration(at - crossed), nil
}

// podsGroup is the cgroup of all pods of the agents that bench starts.
func podsGroup() cgroupfile.Group {
	const name = "berth-bench/berth/kubepods"
	if dir := "/sys/fs/cgroup/" + name; exists(dir) {
		return cgroupfile.Group{Unified: true, Dirs: map[string]string{"": dir}}
	}
	return cgroupfile.Group{Dirs: map[string]string{"memory": "/sys/fs/cgroup/memory/" + name}}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// totalMemory is the machine's memory in bytes.
func totalMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var kb int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kb); err != nil {
		return 0, fmt.Errorf("read /proc/meminfo: %w", err)
	}
	return kb << 10, nil
}
