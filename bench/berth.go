package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/api/client"
)

// berthSide runs pods with Berth. It starts them like a user, by writing manifests.
type berthSide struct {
	process
	client *client.Client
}

func startBerth(ctx context.Context, root string) (*berthSide, error) {
	b := &berthSide{process: process{root: root, stamps: filepath.Join(root, "stamps"), suffix: "-bench",
		remains: []string{
			filepath.Join(root, "pods", "*"), filepath.Join(root, "logs", "*"),
			"/sys/fs/cgroup/*/berth-bench/kubepods/besteffort/pod*",
			"/sys/fs/cgroup/berth-bench/kubepods/besteffort/pod*",
		}}}
	b.client = client.New(filepath.Join(root, "berth.sock"))
	if err := os.MkdirAll(filepath.Join(root, "manifests"), 0o755); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(
		"podLogsDir: %s/logs\npodCIDR: \"10.205.1.0/24,fd00:be:1::/64\"\ncgroupRoot: /berth-bench\nmaxPods: 250\n",
		root)
	if err := b.launch(config, "agent", "--hostname-override", "bench", "--cri-listen", b.socket()); err != nil {
		return nil, err
	}
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) { return b.client.Healthy(ctx) == nil, nil })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start agent: %w", err), b.end())
	}
	out, err := exec.CommandContext(ctx, binary, "--root-dir", root, "image", "load", archive).CombinedOutput()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load image: %w\n%s", err, out), b.end())
	}
	return b, nil
}

func (b *berthSide) start(ctx context.Context, prefix string, pods int, s shape, _ int) (time.Duration, error) {
	watch, err := watchStamps(b.stamps, s.stampNames(prefix, pods)...)
	if err != nil {
		return 0, err
	}
	defer watch.close()
	texts := make([][]byte, pods)
	for i := range pods {
		if texts[i], err = s.manifest(podName(prefix, i), b.stamps); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	for i, text := range texts {
		if err := os.WriteFile(b.manifest(podName(prefix, i)), text, 0o644); err != nil {
			return 0, err
		}
	}
	last, err := watch.last(ctx)
	return last.Sub(begin), err
}

func (b *berthSide) manifest(name string) string {
	return filepath.Join(b.root, "manifests", name+".yaml")
}

func (b *berthSide) remove(ctx context.Context, prefix string, pods, _ int) (time.Duration, error) {
	begin := time.Now()
	for i := range pods {
		if err := os.Remove(b.manifest(podName(prefix, i))); err != nil {
			return 0, err
		}
	}
	if err := b.deleted(ctx, prefix); err != nil {
		return 0, fmt.Errorf("wait for the deletion of pods %s: %w", prefix, err)
	}
	if err := b.nothingLeft(ctx); err != nil {
		return 0, err
	}
	return time.Since(begin), clearDir(b.stamps)
}

// deleted waits until the agent has deleted all pods with this prefix.
func (b *berthSide) deleted(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	left, listed := map[string]bool{}, false
	for change, err := range b.client.WatchPods(ctx, client.Select{Namespace: namespace}) {
		if err != nil {
			return err
		}
		switch {
		case change.Synced:
			listed = true
		case change.Deleted:
			delete(left, change.Object.Name)
		case strings.HasPrefix(change.Object.Name, prefix+"-"):
			left[change.Object.Name] = true
		}
		if listed && len(left) == 0 {
			return nil
		}
	}
	return ctx.Err()
}
