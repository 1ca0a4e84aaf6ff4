package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berth-run/berth/internal/base/dirwatch"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

const (
	// callTimeout limits one call of a plugin.
	callTimeout = 5 * time.Second
	// scanPeriod is how often the directory is read while the kernel cannot report changes of it.
	scanPeriod = time.Second
)

// Run follows the directory until ctx ends. If it cannot, for example because the directory cannot be made, it logs an
// error and retries. Pods that need no plugin run meanwhile. Plugins stay registered meanwhile, and when Run returns.
func (w *Watcher) Run(ctx context.Context) error {
	f := followers{now: map[string]*follower{}, ending: map[string]*follower{}}
	defer f.running.Wait()
	for failures := 1; ; failures++ {
		err := w.run(ctx, &f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		delay := retry.Delay(firstDelay, maxDelay, failures)
		w.opts.Log.Error("cannot watch for plugins, retrying", "dir", w.opts.Dir, "err", err, "delay", delay)
		_ = retry.Sleep(ctx, delay) // the next attempt checks ctx
	}
}

// follower is one followed socket. end ends it; done is closed when it has ended.
type follower struct {
	id   identity
	end  context.CancelCauseFunc
	done chan struct{}
}

// followers are the followed sockets by path.
type followers struct {
	running sync.WaitGroup
	now     map[string]*follower
	// ending are the last followers of removed sockets, which may not have ended yet. A socket that is made again under
	// the same path waits for it, so that a plugin is not deregistered after it was registered again.
	ending map[string]*follower
}

// errGone ends a follower whose socket was removed.
var errGone = errors.New("the plugin's socket is gone")

func (w *Watcher) run(ctx context.Context, f *followers) error {
	if err := os.MkdirAll(w.opts.Dir, 0o750); err != nil {
		return fmt.Errorf("create the directory of plugins: %w", err)
	}
	dirs := dirwatch.Start(scanPeriod, w.opts.Log)
	defer dirs.Close()
	for {
		now, err := w.scan(dirs)
		if err != nil {
			return err
		}
		w.follow(ctx, f, now)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-dirs.Changes():
		}
	}
}

// scan finds all sockets and watches all directories.
func (w *Watcher) scan(dirs *dirwatch.Watcher) (map[string]identity, error) {
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
			// Watch before reading, so that no new socket is missed.
			if err := dirs.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("watch plugins: %w", err)
			}
			return nil
		case d.Type() != fs.ModeSocket:
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err == nil {
			device := uint64(st.Dev) //nolint:unconvert // 32 bits wide on some machines
			found[path] = identity{inode: st.Ino, device: device, made: st.Mtim.Nano()}
		}
		return nil
	})
	return found, err
}

// follow ends the followers of removed sockets and starts a follower for each new socket.
func (w *Watcher) follow(ctx context.Context, fs *followers, now map[string]identity) {
	was := map[string]identity{}
	for path, f := range fs.now {
		was[path] = f.id
	}
	maps.DeleteFunc(fs.ending, func(_ string, f *follower) bool { return f.ended() })
	removed, added := changes(was, now)
	for _, path := range removed {
		f := fs.now[path]
		f.end(errGone)
		fs.ending[path] = f
		delete(fs.now, path)
	}
	for _, path := range added {
		ctx, end := context.WithCancelCause(ctx)
		f := &follower{id: now[path], end: end, done: make(chan struct{})}
		fs.now[path] = f
		previous := fs.ending[path]
		fs.running.Go(func() {
			defer close(f.done)
			defer end(nil)
			if previous != nil {
				<-previous.done
			}
			w.serve(ctx, path)
		})
	}
}

func (f *follower) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// serve keeps the plugin behind a socket registered until the socket is removed.
func (w *Watcher) serve(ctx context.Context, socket string) {
	log := w.opts.Log.With("socket", socket)
	w.note(socket, false)
	defer w.forget(socket)
	for failures := 0; ctx.Err() == nil; {
		p, err := w.register(ctx, socket)
		if err == nil {
			log.Info("plugin registered", "name", p.Name, "type", p.Type, "endpoint", p.Endpoint, "versions",
				p.Versions)
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), errGone) {
				w.forget(socket) // the metric is of sockets, and this one is gone
				w.opts.Handlers[p.Type].Deregister(p)
				log.Info("plugin deregistered", "name", p.Name, "type", p.Type)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		failures++
		delay := retry.Delay(firstDelay, maxDelay, failures)
		log.Warn("cannot register a plugin, retrying", "failures", failures, "err", err, "delay", delay)
		_ = retry.Sleep(ctx, delay) // the loop checks ctx
	}
}

// register reads the description of a plugin, calls its handler and reports the result to the plugin.
func (w *Watcher) register(ctx context.Context, socket string) (Plugin, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithContextDialer(unixsocket.DialTarget),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy())
	if err != nil {
		return Plugin{}, fmt.Errorf("connect to plugin: %w", err)
	}
	defer func() { _ = conn.Close() }()
	client := registration.NewRegistrationClient(conn)
	infoCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := client.GetInfo(infoCtx, &registration.InfoRequest{})
	if err != nil {
		return Plugin{}, fmt.Errorf("read the description of the plugin: %w", err)
	}
	p := Plugin{Name: info.GetName(), Type: info.GetType(), Endpoint: info.GetEndpoint(),
		Versions: info.GetSupportedVersions()}
	if p.Endpoint == "" {
		p.Endpoint = socket
	}
	handler := w.opts.Handlers[p.Type]
	if handler == nil {
		err = fmt.Errorf("this agent does not support plugins of type %q", p.Type)
	} else {
		err = handler.Register(ctx, p)
	}
	if ctx.Err() != nil && err != nil {
		return p, err
	}
	w.note(socket, err == nil)
	notifyCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	answer := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		answer.Error = err.Error()
	}
	_, notifyErr := client.NotifyRegistrationStatus(notifyCtx, answer)
	switch {
	case err != nil:
		return p, fmt.Errorf("register plugin %q: %w", p.Name, err)
	case notifyErr != nil:
		handler.Deregister(p)
		w.note(socket, false)
		return p, fmt.Errorf("notify plugin %q of its registration: %w", p.Name, notifyErr)
	}
	return p, nil
}
