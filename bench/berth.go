package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/client"
)

const (
	binary  = "bin/berth"
	archive = "bin/workload.tar"
	image   = "example.com/workload:1"

	configHeader = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
)

// berthSide starts pods as a user does: by writing manifests.
type berthSide struct {
	root, stamps string
	cmd          *exec.Cmd
	client       *client.Client
}

func startBerth(ctx context.Context, root string) (*berthSide, error) {
	b := &berthSide{root: root, stamps: filepath.Join(root, "stamps"), client: client.New(filepath.Join(root, "berth.sock"))}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "manifests"), 0o755), os.MkdirAll(b.stamps, 0o755)); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(configHeader+"podLogsDir: %s/logs\npodCIDR: \"10.205.1.0/24,fd00:be:1::/64\"\ncgroupRoot: /berth-bench\n", root)
	if err := os.WriteFile(filepath.Join(root, "config.yaml"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	b.cmd = exec.Command(binary, "agent", "--log-level", "warn", "--hostname-override", "bench", "--root-dir", root, "--config", filepath.Join(root, "config.yaml"))
	b.cmd.Stderr = os.Stderr
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, errors.Join(err, b.end())
	}
	out, err := exec.CommandContext(ctx, binary, "--root-dir", root, "image", "load", archive).CombinedOutput()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load image: %w\n%s", err, out), b.end())
	}
	return b, nil
}

func (b *berthSide) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := b.client.Healthy(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start agent: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *berthSide) end() error {
	return endProcess(b.cmd, "reset", "--yes", "--root-dir", b.root, "--config", filepath.Join(b.root, "config.yaml"))
}

// endProcess ends a side's process and has everything below its root removed.
func endProcess(cmd *exec.Cmd, reset ...string) error {
	err := cmd.Process.Signal(unix.SIGTERM)
	_ = cmd.Wait() // it was told to end
	if out, resetErr := exec.Command(binary, reset...).CombinedOutput(); resetErr != nil {
		err = errors.Join(err, fmt.Errorf("reset: %w\n%s", resetErr, out))
	}
	return err
}

func podName(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

func containerName(i int) string { return fmt.Sprintf("c%d", i) }

// manifest is a pod of containers that stamp the clock and sleep.
func manifest(name, stamps string, containers int) string {
	var s strings.Builder
	fmt.Fprintf(&s, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default}\nspec:\n  terminationGracePeriodSeconds: 0\n", name)
	fmt.Fprintf(&s, "  volumes: [{name: stamps, hostPath: {path: %s}}]\n  containers:\n", stamps)
	for i := range containers {
		fmt.Fprintf(&s, "  - name: %s\n    image: %s\n    args: [stamp, /stamps/%s-%s, then, sleep]\n"+
			"    volumeMounts: [{name: stamps, mountPath: /stamps}]\n", containerName(i), image, name, containerName(i))
	}
	return s.String()
}

func (b *berthSide) start(ctx context.Context, prefix string, pods, containers, _ int) (time.Duration, error) {
	watch, err := watchStamps(b.stamps, prefix, pods, containers)
	if err != nil {
		return 0, err
	}
	defer watch.close()
	texts := make([]string, pods)
	for i := range pods {
		texts[i] = manifest(podName(prefix, i), b.stamps, containers)
	}
	begin := time.Now()
	for i, text := range texts {
		if err := os.WriteFile(b.manifest(prefix, i), []byte(text), 0o644); err != nil {
			return 0, err
		}
	}
	last, err := watch.last(ctx)
	return last.Sub(begin), err
}

func (b *berthSide) manifest(prefix string, i int) string {
	return filepath.Join(b.root, "manifests", podName(prefix, i)+".yaml")
}

func (b *berthSide) remove(ctx context.Context, prefix string, pods int) error {
	for i := range pods {
		if err := os.Remove(b.manifest(prefix, i)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	left, listed := map[string]bool{}, false
	for change, err := range b.client.WatchPods(ctx, client.Select{Namespace: "default"}) {
		if err != nil {
			return fmt.Errorf("wait for the end of %s: %w", prefix, err)
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
			return clearStamps(b.stamps)
		}
	}
	return ctx.Err()
}

func clearStamps(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}

// stampWatch waits for the files that the workloads write at their start.
type stampWatch struct {
	dir     string
	notify  *fsnotify.Watcher
	missing map[string]bool
	newest  time.Time
}

func watchStamps(dir, prefix string, pods, containers int) (*stampWatch, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &stampWatch{dir: dir, notify: notify, missing: map[string]bool{}}
	for i := range pods {
		for c := range containers {
			w.missing[podName(prefix, i)+"-"+containerName(c)] = true
		}
	}
	return w, notify.Add(dir)
}

func (w *stampWatch) close() { _ = w.notify.Close() }

// last returns when the last of the containers executed its first instruction.
func (w *stampWatch) last(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for len(w.missing) > 0 {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for the stamps of %d containers: %w", len(w.missing), ctx.Err())
		case e := <-w.notify.Events:
			w.take(filepath.Base(e.Name))
		}
	}
	return w.newest, nil
}

// take reads a stamp, unless it is still being written.
func (w *stampWatch) take(name string) {
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil || !w.missing[name] || !strings.HasSuffix(string(text), "\n") {
		return
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return
	}
	delete(w.missing, name)
	if at := time.Unix(0, ns); at.After(w.newest) {
		w.newest = at
	}
}

func (b *berthSide) pid() int { return b.cmd.Process.Pid }
