package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/base/quota"
	"github.com/berth-run/berth/internal/base/retry"
)

// blind is a configuration without thresholds and limits.
const blind = "evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, " +
	"imagefs.available: 0%, imagefs.inodesFree: 0%}\nlocalStorageCapacityIsolation: false\n"

// settle is how long to wait after a start, until garbage collection and write-back have ended.
const settle = 15 * time.Second

// idle returns the CPU of an agent while pods with limits of local storage do nothing, in percent of a core. root is
// its directory, and lines are the lines of its configuration.
func idle(ctx context.Context, root, lines string, pods int, watch time.Duration) (percent float64, err error) {
	agent, err := side.StartBerthWith(ctx, side.Dirs{Root: root}, lines)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, agent.Close()) }()
	shape := side.Shape{Edit: func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Gi"))}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: "data", MountPath: "/data"})
	}}
	if _, err := agent.Start(ctx, "idle", pods, shape, 0); err != nil {
		return 0, err
	}
	if err := retry.Sleep(ctx, settle); err != nil {
		return 0, err
	}
	before, err := proc.CPU(agent.PID())
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := retry.Sleep(ctx, watch); err != nil {
		return 0, err
	}
	after, err := proc.CPU(agent.PID())
	return (after.Own - before.Own).Seconds() / time.Since(begin).Seconds() * 100, err
}

// walk measures how long it takes to measure a directory with many empty files, by a walk and by its project quota. It
// makes dir. counted is 0 if the kernel or the file system has no quotas.
func walk(ctx context.Context, dir string, files int) (walked, counted time.Duration, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, 0, err
	}
	has, err := (&quota.Projects{}).Assign(dir)
	if err != nil {
		return 0, 0, err
	}
	for i := range files {
		below := filepath.Join(dir, fmt.Sprint(i/1000))
		if i%1000 == 0 {
			if err := errors.Join(ctx.Err(), os.Mkdir(below, 0o755)); err != nil {
				return 0, 0, err
			}
		}
		if err := os.WriteFile(filepath.Join(below, fmt.Sprint(i)), nil, 0o644); err != nil {
			return 0, 0, err
		}
	}
	const rounds = 3
	var walks, reads []time.Duration
	for range rounds {
		begin := time.Now()
		if _, err := diskusage.Measure(ctx, dir); err != nil {
			return 0, 0, err
		}
		walks = append(walks, time.Since(begin))
		begin = time.Now()
		if _, _, err := quota.Measure(dir); err != nil {
			return 0, 0, err
		}
		reads = append(reads, time.Since(begin))
	}
	if has {
		counted = slices.Min(reads)
	}
	return slices.Min(walks), counted, quota.Release(dir)
}
