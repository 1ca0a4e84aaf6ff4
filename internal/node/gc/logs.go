package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/process"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// removeLogs removes stale logs of earlier instances.
func (g *Collector) removeLogs(o *pod.Observed, containers map[string]instances) error {
	var errs []error
	for name, in := range containers {
		dir := filepath.Join(podlog.PodDir(g.opts.LogsDir, o.Namespace, o.Name, o.UID), name)
		files, err := names(dir)
		errs = append(errs, err)
		for _, file := range staleLogs(files, in, g.opts.Policy.PerContainer) {
			errs = append(errs, safepath.IgnoreMissing(removeFile(filepath.Join(dir, file))))
		}
	}
	return errors.Join(errs...)
}

// sweep removes the logs of unknown pods and links without a target.
func (g *Collector) sweep(ctx context.Context) error {
	orphans, err := g.opts.Logs.LogOrphans(g.known)
	errs := []error{err}
	if len(orphans) > 0 {
		inUse, err := openBelow(g.opts.LogsDir)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, uid := range orphans {
			if inUse[uid] { // belongs to another agent on this machine
				g.opts.Log.Warn(
					"keeping the logs of an unknown pod because a process writes to them, two agents may "+
						"share podLogsDir", "uid",
					uid)
				continue
			}
			g.opts.Log.Info("removing the logs of an unknown pod", "uid", uid)
			errs = append(errs, g.opts.Logs.RemoveLogs(ctx, uid))
		}
	}
	return errors.Join(append(errs, g.sweepLinks())...)
}

// known reports whether a pod is wanted or still in the runtime.
func (g *Collector) known(uid types.UID) bool {
	_, seen := g.opts.Observed.Get(uid)
	return seen || g.opts.Pods.Known(uid)
}

// sweepLinks removes links to logs that no longer exist.
func (g *Collector) sweepLinks() error {
	if g.opts.LinkDir == "" {
		return nil
	}
	links, err := names(g.opts.LinkDir)
	errs := []error{err}
	for _, name := range links {
		link := filepath.Join(g.opts.LinkDir, name)
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, g.opts.LogsDir+"/") {
			continue // not a link, or not to one of our logs
		}
		files, err := names(filepath.Dir(target))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if dangling(filepath.Base(target), files) {
			errs = append(errs, safepath.IgnoreMissing(removeFile(link)))
		}
	}
	return errors.Join(errs...)
}

// openBelow returns the pods whose logs any process has open.
func openBelow(dir string) (map[types.UID]bool, error) {
	open := map[types.UID]bool{}
	all, err := process.IDs()
	if err != nil {
		return nil, err
	}
	for _, id := range all {
		fds, err := filepath.Glob(process.Path(id, "fd/*"))
		if err != nil {
			return nil, fmt.Errorf("list open files: %w", err)
		}
		for _, fd := range fds {
			file, err := os.Readlink(fd)
			if err != nil {
				continue // it was closed meanwhile
			}
			rest, ok := strings.CutPrefix(file, dir+"/")
			if !ok {
				continue
			}
			name, _, _ := strings.Cut(rest, "/")
			open[types.UID(name[strings.LastIndexByte(name, '_')+1:])] = true
		}
	}
	return open, nil
}

// names lists a directory. A missing directory is empty.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list directory: %w", err)
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return list, nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	return nil
}
