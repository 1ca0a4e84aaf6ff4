package side

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/bench/sigtrace"
	"github.com/berth-run/berth/bench/stamp"
	"github.com/berth-run/berth/internal/api/client"
)

// Berth runs pods with Berth. It starts them like a user, by writing manifests.
type Berth struct {
	Process
	Client *client.Client // of the local API
}

// StartBerth starts an agent on its directories, with the image loaded.
func StartBerth(ctx context.Context, dirs Dirs) (*Berth, error) {
	return StartBerthWith(ctx, dirs, thresholds)
}

// StartFresh starts an agent beside another one, on other directories, with the image loaded.
func StartFresh(ctx context.Context, dirs Dirs) (*Berth, error) {
	b := newBerth(dirs, Group{"fresh"})
	return b, b.start(ctx, thresholds+"podCIDR: \"10.205.4.0/24,fd00:be:4::/64\"\n")
}

// StartBerthWith starts an agent with these lines in its KubeletConfiguration.
func StartBerthWith(ctx context.Context, dirs Dirs, lines string) (*Berth, error) {
	b := newBerth(dirs, Group{"berth"})
	return b, b.start(ctx, lines+"podCIDR: \"10.205.1.0/24,fd00:be:1::/64\"\n")
}

// newBerth describes an agent and its pods.
func newBerth(dirs Dirs, group Group) *Berth {
	root := dirs.Root
	return &Berth{Process: Process{
		Dirs: dirs, Stamps: filepath.Join(root, "stamps"), Suffix: "-bench", group: group,
		remains: []string{
			filepath.Join(root, "pods", "*"), filepath.Join(root, "logs", "*"),
			"/sys/fs/cgroup/*" + group.name() + "/kubepods/besteffort/pod*",
			"/sys/fs/cgroup" + group.name() + "/kubepods/besteffort/pod*",
		}},
		Client: client.New(filepath.Join(root, "berth.sock"))}
}

// start starts the agent with further lines of its KubeletConfiguration, and loads the image.
func (b *Berth) start(ctx context.Context, config string) error {
	if err := os.MkdirAll(filepath.Join(b.Root, "manifests"), 0o755); err != nil {
		return err
	}
	config = fmt.Sprintf("podLogsDir: %s/logs\ncgroupRoot: %s\nmaxPods: 300\n", b.Root, b.group.name()) + config
	if err := b.launch(config, "agent", "--hostname-override", "bench", "--cri-listen", b.socket()); err != nil {
		return err
	}
	err := poll(ctx, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		return b.Client.Healthy(ctx) == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start agent: %w", err), b.Close())
	}
	load := exec.CommandContext(ctx, binary(b.Root), "--root-dir", b.Root, "image", "load", Archive)
	out, err := load.CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("load image: %w\n%s", err, out), b.Close())
	}
	return nil
}

// Start implements Side.
func (b *Berth) Start(ctx context.Context, prefix string, pods int, s Shape, _ int) (time.Duration, error) {
	watch, err := stamp.Watch(b.Stamps, s.stampNames(prefix, pods)...)
	if err != nil {
		return 0, err
	}
	defer watch.Close()
	texts := make([][]byte, pods)
	for i := range pods {
		if texts[i], err = s.manifest(PodName(prefix, i), b.Stamps); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	for i, text := range texts {
		if err := os.WriteFile(b.Manifest(PodName(prefix, i)), text, 0o644); err != nil {
			return 0, err
		}
	}
	last, err := watch.Last(ctx)
	return last.Sub(begin), err
}

// Manifest is the path of the manifest of a pod or of an object.
func (b *Berth) Manifest(name string) string {
	return filepath.Join(b.Root, "manifests", name+".yaml")
}

// Remove implements Side.
func (b *Berth) Remove(ctx context.Context, prefix string, pods, _ int) (time.Duration, error) {
	took, err := b.removeAll(ctx, prefix, pods)
	return took, errors.Join(err, stamp.Clear(b.Stamps))
}

// removeAll removes manifests, and waits until nothing of the pods is left.
func (b *Berth) removeAll(ctx context.Context, prefix string, pods int) (time.Duration, error) {
	begin := time.Now()
	for i := range pods {
		if err := os.Remove(b.Manifest(PodName(prefix, i))); err != nil {
			return 0, err
		}
	}
	if err := b.deleted(ctx, prefix); err != nil {
		return 0, fmt.Errorf("wait for the deletion of pods %s: %w", prefix, err)
	}
	if err := b.nothingLeft(ctx); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// Ended has the times of the end of pods: until the last SIGTERM is sent, until the last container handles it, and
// until nothing of the pods is left.
type Ended struct{ Sent, Handled, Gone time.Duration }

// End removes pods of the shape Marking.
func (b *Berth) End(ctx context.Context, prefix string, pods int) (e Ended, err error) {
	var names []string
	for i := range pods {
		names = append(names, endName(PodName(prefix, i)))
	}
	watch, err := stamp.Watch(b.Stamps, names...)
	if err != nil {
		return e, err
	}
	defer watch.Close()
	trace, err := sigtrace.Start(unix.SIGTERM, "workload")
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, trace.Close()) }()
	if err := trace.Mark(); err != nil {
		return e, err
	}
	begin := time.Now()
	removed := make(chan error, 1)
	go func() {
		var err error
		e.Gone, err = b.removeAll(ctx, prefix, pods)
		removed <- err
	}()
	last, err := watch.Last(ctx)
	e.Handled = last.Sub(begin)
	sent, failed := trace.Sent()
	if failed == nil && len(sent) != pods {
		failed = fmt.Errorf("the kernel sent %d SIGTERMs to %d containers", len(sent), pods)
	}
	if err := errors.Join(err, failed, <-removed, stamp.Clear(b.Stamps)); err != nil {
		return e, err
	}
	e.Sent = slices.Max(sent)
	return e, nil
}

// deleted waits until the agent has deleted all pods with this prefix.
func (b *Berth) deleted(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	left, listed := map[string]bool{}, false
	for change, err := range b.Client.WatchPods(ctx, client.Select{Namespace: Namespace}) {
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

// Write writes an object to the manifest directory with one rename.
func (b *Berth) Write(name string, object any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	temporary := filepath.Join(b.Root, name+".new")
	return errors.Join(os.WriteFile(temporary, text, 0o644), os.Rename(temporary, b.Manifest(name)))
}
