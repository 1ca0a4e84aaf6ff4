package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// callLimit bounds one call of a plugin.
const callLimit = 5 * time.Second

// Run follows the directory until ctx ends. A machine on which nobody can register
// still runs pods: Run says so in the log and tries again, as for want of inotify
// instances. Plugins stay registered meanwhile, and when it ends.
func (w *Watcher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	followed := map[string]*follower{}
	for failures := 1; ; failures++ {
		err := w.run(ctx, &running, followed)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.opts.Log.Error("no plugin can register", "dir", w.opts.Dir, "err", err, "again in", pause(failures))
		sleep(ctx, pause(failures))
	}
}

// sleep returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// follower is one socket that is followed. end ends it for good, done is closed
// when it has ended.
type follower struct {
	id   identity
	end  context.CancelCauseFunc
	done chan struct{}
}

// errGone is why a follower ends whose socket is no more.
var errGone = errors.New("the plugin's socket is gone")

func (w *Watcher) run(ctx context.Context, running *sync.WaitGroup, followed map[string]*follower) error {
	if err := os.MkdirAll(w.opts.Dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of plugins: %w", err)
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch plugins: %w", err)
	}
	defer func() { _ = notify.Close() }()
	for {
		now, err := w.scan(notify)
		if err != nil {
			return err
		}
		w.follow(ctx, running, followed, now)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, ok := <-notify.Events:
			if !ok {
				return errors.New("watch plugins: the watch has ended")
			}
		case err := <-notify.Errors: // events were lost: the scan finds what they told
			w.opts.Log.Warn("watch plugins", "err", err)
		}
	}
}

// scan finds all sockets and watches all directories.
func (w *Watcher) scan(notify *fsnotify.Watcher) (map[string]identity, error) {
	found := map[string]identity{}
	err := filepath.WalkDir(w.opts.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != w.opts.Dir:
			return nil
		case err != nil:
			return fmt.Errorf("read the directory of plugins: %w", err)
		case path != w.opts.Dir && hidden(d.Name()):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir():
			// Before it is read, so that nothing appears in between.
			if err := notify.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("watch plugins: %w", err)
			}
			return nil
		case d.Type() != fs.ModeSocket:
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err == nil {
			found[path] = identity{inode: st.Ino, device: uint64(st.Dev),
				made: st.Mtim.Nano()} //nolint:unconvert // 32 bits wide on some machines
		}
		return nil
	})
	return found, err
}

// follow ends the followers of sockets that are gone and starts those of new ones.
func (w *Watcher) follow(ctx context.Context, running *sync.WaitGroup, followed map[string]*follower,
	now map[string]identity) {
	was := map[string]identity{}
	for path, f := range followed {
		was[path] = f.id
	}
	gone, come := changes(was, now)
	before := map[string]<-chan struct{}{}
	for _, path := range gone {
		followed[path].end(errGone)
		before[path] = followed[path].done
		delete(followed, path)
	}
	for _, path := range come {
		ctx, end := context.WithCancelCause(ctx)
		f := &follower{id: now[path], end: end, done: make(chan struct{})}
		followed[path] = f
		running.Go(func() {
			defer close(f.done)
			defer end(nil)
			if previous := before[path]; previous != nil {
				<-previous
			}
			w.serve(ctx, path)
		})
	}
}

// serve has the plugin behind a socket registered until the socket is gone.
func (w *Watcher) serve(ctx context.Context, socket string) {
	log := w.opts.Log.With("socket", socket)
	for failures := 0; ctx.Err() == nil; {
		p, err := w.register(ctx, socket)
		if err == nil {
			log.Info("plugin registered", "name", p.Name, "type", p.Type, "endpoint", p.Endpoint, "versions",
				p.Versions)
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), errGone) {
				w.opts.Handlers[p.Type].Deregister(p)
				log.Info("plugin deregistered", "name", p.Name, "type", p.Type)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		failures++
		log.Warn("register plugin", "failures", failures, "err", err)
		sleep(ctx, pause(failures))
	}
}

// register asks a plugin what it is, hands it to its handler and tells it the
// outcome.
func (w *Watcher) register(ctx context.Context, socket string) (Plugin, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy())
	if err != nil {
		return Plugin{}, fmt.Errorf("connect to plugin: %w", err)
	}
	defer func() { _ = conn.Close() }()
	client := registration.NewRegistrationClient(conn)
	asking, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	info, err := client.GetInfo(asking, &registration.InfoRequest{})
	if err != nil {
		return Plugin{}, fmt.Errorf("ask plugin what it is: %w", err)
	}
	p := Plugin{Name: info.GetName(), Type: info.GetType(), Endpoint: info.GetEndpoint(),
		Versions: info.GetSupportedVersions()}
	if p.Endpoint == "" {
		p.Endpoint = socket
	}
	handler := w.opts.Handlers[p.Type]
	if handler == nil {
		err = fmt.Errorf("plugins of type %q are not handled by this agent", p.Type)
	} else {
		err = handler.Register(ctx, p)
	}
	if ctx.Err() != nil && err != nil {
		return p, err
	}
	telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	answer := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		answer.Error = err.Error()
	}
	_, told := client.NotifyRegistrationStatus(telling, answer)
	switch {
	case err != nil:
		return p, fmt.Errorf("register plugin %q: %w", p.Name, err)
	case told != nil:
		handler.Deregister(p)
		return p, fmt.Errorf("tell plugin %q that it is registered: %w", p.Name, told)
	}
	return p, nil
}
