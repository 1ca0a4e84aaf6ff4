package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	// oomKilled is how many hogs the kernel ended first, and early how many the agent evicted before the threshold.
	oomKilled, early int
}

// node runs pods.
type node interface {
	// start starts a pod and waits until its container runs.
	start(ctx context.Context, name, manifest string) error
	// ended waits until the container of a pod has ended and the agent has reported how. If the container was
	// OOMKilled, the kernel was first.
	ended(ctx context.Context, name string) (evicted bool, err error)
	// remove deletes a pod.
	remove(ctx context.Context, name string) error
}

// hogLines returns the lines of a KubeletConfiguration that let all pods use hogLimit together.
func hogLines() (string, error) {
	total, err := totalMemory()
	return fmt.Sprintf("evictionHard: {memory.available: \"%d\"}\nevictionPressureTransitionPeriod: 1s\n"+
		"systemReserved: {memory: \"%d\"}\nimageGCHighThresholdPercent: 100\n", hogThreshold, total-hogLimit), err
}

// hunt starts hogs one after the other on an agent whose pods may use hogLimit together. root is its directory.
func hunt(ctx context.Context, root string, count int) (h hogs, err error) {
	lines, err := hogLines()
	if err != nil {
		return h, err
	}
	agent, err := side.StartBerthWith(ctx, side.Dirs{Root: root}, lines)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, agent.Close()) }()
	agent.Suffix = "" // the pods are applied
	return h, h.run(ctx, berthNode{agent}, agent.Stamps, "/berth-bench/berth", count)
}

// run starts hogs one after the other. stamps is a directory for their steps, and group the cgroup root of the node.
func (h *hogs) run(ctx context.Context, n node, stamps, group string, count int) error {
	for i := range count {
		if err := h.hog(ctx, n, stamps, group, fmt.Sprintf("hog-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// hog runs one hog to its end and adds the result.
func (h *hogs) hog(ctx context.Context, n node, stamps, group, name string) error {
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
`, name, stamps, 2*hogLimit, hogRate)
	if err := n.start(ctx, name, manifest); err != nil {
		return err
	}
	before, err := stats.MemoryOf(podsGroup(group))
	if err != nil {
		return fmt.Errorf("read the memory of all pods: %w", err)
	}
	if err := os.WriteFile(filepath.Join(stamps, name+"-go"), nil, 0o644); err != nil {
		return err
	}
	evicted, err := n.ended(ctx, name)
	if err != nil {
		return err
	}
	took, err := afterCrossing(filepath.Join(stamps, name), before.Limit-hogThreshold-before.WorkingSet)
	switch {
	case !evicted:
		h.oomKilled++
	case errors.Is(err, errEarly):
		h.early++
	case err != nil:
		return err
	default:
		h.kills = append(h.kills, took)
	}
	return n.remove(ctx, name)
}

// berthNode implements node.
type berthNode struct{ agent *side.Berth }

func (b berthNode) start(ctx context.Context, name, manifest string) error {
	if _, err := b.agent.Client.Apply(ctx, []byte(manifest), client.Apply{Namespace: side.Namespace}); err != nil {
		return err
	}
	_, _, err := b.agent.Container(ctx, name)
	return err
}

func (b berthNode) ended(ctx context.Context, name string) (evicted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, side.Patience)
	defer cancel()
	for change, err := range b.agent.Client.WatchPods(ctx, client.Select{Namespace: side.Namespace}) {
		if err != nil {
			return false, err
		}
		if p := change.Object; !change.Synced && p.Name == name {
			if evicted, ended := howEnded(p); ended {
				return evicted, nil
			}
		}
	}
	return false, fmt.Errorf("pod %s has not ended: %w", name, ctx.Err())
}

func (b berthNode) remove(ctx context.Context, name string) error {
	_, err := b.agent.Client.Pod(types.NamespacedName{Namespace: side.Namespace, Name: name}).Delete(ctx, "", nil)
	return err
}

// howEnded reports whether a pod has ended, and whether it was evicted and the kernel was not first.
func howEnded(p *corev1.Pod) (evicted, ended bool) {
	if p.Status.Phase != corev1.PodFailed {
		return false, false
	}
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil {
			return p.Status.Reason == "Evicted" && t.Reason != "OOMKilled", true
		}
	}
	return false, false
}

// errEarly is the error of a hog that ended before it crossed the threshold.
var errEarly = errors.New("it ended before the threshold")

// afterCrossing returns the time from a hog's first step with so many bytes to its last step. steps is the file with
// its steps.
func afterCrossing(steps string, bytes int64) (time.Duration, error) {
	file, err := os.Open(steps)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, errEarly
	}
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
		return 0, fmt.Errorf("the hog took %d of %d bytes: %w", taken, bytes, errEarly)
	}
	return time.Duration(at - crossed), nil
}

// podsGroup is the cgroup of all pods of a node with this cgroup root.
func podsGroup(root string) cgroupfile.Group {
	name := filepath.Join(root, "kubepods")
	if dir := filepath.Join("/sys/fs/cgroup", name); exists(dir) {
		return cgroupfile.Group{Unified: true, Dirs: map[string]string{"": dir}}
	}
	return cgroupfile.Group{Dirs: map[string]string{"memory": filepath.Join("/sys/fs/cgroup/memory", name)}}
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
