package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/runtime"
	shims "github.com/containerd/containerd/v2/core/runtime/v2"
	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/timeout"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/plugin"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/sysmon"
	"github.com/berth-run/berth/internal/runtime/replace"
	"github.com/berth-run/berth/internal/runtime/tasks/fifos"
	"github.com/berth-run/berth/internal/runtime/unpack"
)

// Config configures a manager.
type Config struct {
	// Program is the path of the shim. Containers with this runtime path are the manager's.
	Program string
	// Root and State are the directories of the runtime. State ends with a reboot.
	Root, State string
	// Socket is the path of the shim's socket.
	Socket string
	// Checkpoints is the directory of the checkpoints of containers that have not started, by container ID (package
	// restore).
	Checkpoints string
	// Events is the path of containerd's socket for events.
	Events string
	// Limits apply to the logs that the shim writes.
	Limits logfile.Limits
	Log    *slog.Logger
}

// Address is the address of the shim in containerd's form.
func (c Config) Address() string { return "ttrpc+unix://" + c.Socket }

// bundles is the directory of the running containers, NAMESPACE/ID.
func (c Config) bundles() string { return filepath.Join(c.State, "tasks") }

// bundle is the bundle of a container.
func (c Config) bundle(namespace, id string) string { return filepath.Join(c.bundles(), namespace, id) }

// exits is the directory of the exits of containers that were just deleted, NAMESPACE/ID.
func (c Config) exits() string { return filepath.Join(c.State, "exits") }

// limits is the file with the limits of logs.
func (c Config) limits() string { return filepath.Join(c.State, logfile.LimitsFile) }

// work is the directory for what a container keeps on disk while it runs.
func (c Config) work() string { return filepath.Join(c.Root, "tasks") }

// records is the directory of the CRI plugin's records of containers, ID/status.
func (c Config) records() string {
	return filepath.Join(c.Root, "io.containerd.grpc.v1.cri", "containers")
}

// stock is containerd's own task plugin.
type stock interface {
	runtime.PlatformRuntime
	PluginInfo(ctx context.Context, request any) (any, error)
}

// Manager is containerd's task plugin.
type Manager struct {
	stock
	config Config
	shim   *link

	mu  sync.Mutex
	own map[string]owned // the containers of the shim
	// ended has the containers that the agent before has deleted shortly before its end.
	ended map[string]*ended
}

// owned has the files of a container that the agent keeps open for the next shim.
type owned struct {
	pidfd *os.File   // of the first process; nil if there is none
	logs  []*os.File // the FIFOs with the output for the log
}

// Register replaces containerd's task plugin by a manager, which uses it. Call it once, before containerd starts.
func Register(config Config) {
	replace.Plugin(plugins.RuntimePluginV2, "task",
		func(ic *plugin.InitContext) error {
			return nameShims(ic.Properties[plugins.PropertyStateDir], config.Program)
		},
		func(ic *plugin.InitContext, before stock) (any, error) { return newManager(ic.Context, config, before) })
}

// shimPath is the file in a bundle of the stock plugin with the path of the container's shim.
const shimPath = "shim-binary-path"

// nameShims writes the path of the shim into the state of each container of the stock plugin whose sandbox is from an
// earlier run. The plugin records this path only for sandboxes. For the containers in them it searches PATH, and drops
// a container if it finds no shim there. program is the shim of sandboxes whose own is not recorded.
func nameShims(state, program string) error {
	sandboxed, err := filepath.Glob(filepath.Join(state, "*", "*", "sandbox"))
	if err != nil {
		return err
	}
	for _, file := range sandboxed {
		sandbox, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the sandbox of a container: %w", err)
		}
		bundle := filepath.Dir(file)
		path, err := os.ReadFile(filepath.Join(filepath.Dir(bundle), filepath.Base(string(sandbox)), shimPath))
		if err != nil {
			path = []byte(program)
		}
		if err := os.WriteFile(filepath.Join(bundle, shimPath), path, 0o600); err != nil {
			return fmt.Errorf("write the shim path of a container: %w", err)
		}
	}
	return nil
}

// newManager continues with the containers of the shim.
func newManager(ctx context.Context, config Config, before stock) (*Manager, error) {
	m := &Manager{stock: before, config: config, own: map[string]owned{}, ended: map[string]*ended{}}
	m.shim = &link{config: config, pidfds: m.pidfds, held: fifos.NewHeld()}
	if err := config.Limits.Write(config.limits()); err != nil {
		return nil, fmt.Errorf("write limits of logs: %w", err)
	}
	limited, cancel := timeout.WithContext(ctx, loadTimeout)
	defer cancel()
	err := m.loadAll(limited)
	if limited.Err() != nil && ctx.Err() == nil {
		config.Log.Error("shim does not answer, replacing it", "after", timeout.Get(loadTimeout))
		if err := m.shim.kill(m.shim.current()); err != nil {
			return nil, fmt.Errorf("kill shim that does not answer: %w", err)
		}
		err = m.loadAll(ctx)
	}
	if err != nil {
		return nil, err
	}
	m.removeOrphans(ctx)
	if err := m.loadExits(); err != nil {
		return nil, fmt.Errorf("find the exits of deleted containers: %w", err)
	}
	return m, nil
}

// loadTimeout is containerd's name for the time that shims have to answer at the start.
const loadTimeout = "io.containerd.timeout.shim.load"

// loadAll continues with all containers that have a bundle.
func (m *Manager) loadAll(ctx context.Context) error {
	bundles, err := filepath.Glob(filepath.Join(m.config.bundles(), "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range bundles {
		bundle := &shims.Bundle{
			ID: filepath.Base(path), Path: path, Namespace: filepath.Base(filepath.Dir(path)),
		}
		if err := m.load(namespaces.WithNamespace(ctx, bundle.Namespace), bundle); err != nil {
			return fmt.Errorf("continue with container %s: %w", bundle.ID, err)
		}
	}
	return nil
}

// load continues with a container, or removes one that was not created. So it does with one that has ended without a
// start: an agent before this one was killed while it started the container, and the next one while it undid that. For
// the CRI plugin the container would have run.
func (m *Manager) load(ctx context.Context, bundle *shims.Bundle) error {
	if filepath.Base(bundle.Path)[0] == '.' { // it was being deleted
		return os.RemoveAll(bundle.Path)
	}
	t := &task{process{m.shim, bundle.ID, ""}, bundle.Namespace}
	state, err := t.state(ctx)
	if errdefs.IsNotFound(err) {
		return bundle.Delete()
	}
	if err != nil {
		return err
	}
	if state.Status == tasktypes.Status_STOPPED && state.Pid == 0 {
		return errors.Join(t.undo(ctx), bundle.Delete())
	}
	m.add(ctx, t, state.Pid)
	m.shim.held.Hold(t.container, fifos.Outputs(bundle.Path, state.Stdout, state.Stderr, state.Terminal))
	return nil
}

// add adds a container of the shim.
func (m *Manager) add(ctx context.Context, t *task, pid uint32) {
	var file *os.File
	if fd, err := unix.PidfdOpen(int(pid), 0); pid != 0 && err == nil {
		file = os.NewFile(uintptr(fd), "pidfd")
		// If the process had not ended when its pidfd was open, the pidfd is its.
		if state, err := t.state(ctx); err != nil || state.Status == tasktypes.Status_STOPPED {
			_ = file.Close()
			file = nil
		}
	}
	logs := fifos.KeepLogs(m.config.bundle(t.namespace, t.container))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.own[t.container] = owned{file, logs}
}

// remove forgets a container.
func (m *Manager) remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if file := m.own[id].pidfd; file != nil {
		_ = file.Close()
	}
	fifos.Close(m.own[id].logs)
	delete(m.own, id)
	m.shim.held.Forget(id)
}

func (m *Manager) pidfds() map[string]*os.File {
	m.mu.Lock()
	defer m.mu.Unlock()
	fds := map[string]*os.File{}
	for id, c := range m.own {
		if c.pidfd != nil {
			fds[id] = c.pidfd
		}
	}
	return fds
}

func (m *Manager) owns(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.own[id]
	return ok
}

// Pipes returns the FIFOs of a container for attached clients, by file descriptor: standard input, and the copies of
// standard output and standard error, which the shim makes while they have a reader. The FIFO of the input is missing
// if the container has no input, or if the input has ended. ok is false for a container whose streams containerd has,
// and for one that is gone.
func (m *Manager) Pipes(ctx context.Context, id string) (paths [3]string, ok bool) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil || !m.owns(id) {
		return paths, false
	}
	paths = fifos.In(m.config.bundle(namespace, id))
	_, err = os.Stat(paths[1])
	return paths, err == nil
}

// deleted returns a container that the agent before has deleted shortly before its end.
func (m *Manager) deleted(id string) (*ended, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	task, ok := m.ended[id]
	return task, ok
}

// Close implements io.Closer for containerd: it disconnects from the shim, which runs on. It ends a shim without
// containers.
func (m *Manager) Close() error {
	m.removeOrphans(context.Background())
	m.shim.close()
	m.mu.Lock()
	containers := len(m.own)
	m.mu.Unlock()
	if containers > 0 {
		return nil
	}
	return m.shim.end()
}

// Prepare starts a shim if there is none, and returns at once. Call it when a container will soon be created, which
// then does not wait for the shim. An error has no effect before that: Create tries again.
func (m *Manager) Prepare() {
	go func() {
		if _, err := m.shim.connect(); err != nil {
			m.config.Log.Debug("cannot start the shim ahead of a container", "err", err)
		}
	}()
}

// Create implements runtime.PlatformRuntime.
func (m *Manager) Create(ctx context.Context, id string, o runtime.CreateOpts) (runtime.Task, error) {
	if o.Runtime != m.config.Program {
		if o.Address == m.config.Address() {
			o.SandboxID, o.Address = "", "" // else the stock plugin would look for a shim there
		}
		var created runtime.Task
		err := sysmon.Usual(func() (err error) { // a shim of another runtime may be the parent of the container
			created, err = m.stock.Create(ctx, id, o)
			return err
		})
		return created, err
	}
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	checkpoint := filepath.Join(m.config.Checkpoints, id)
	_, err = os.Stat(checkpoint)
	restored := err == nil
	if restored {
		o.Checkpoint = filepath.Join(checkpoint, "checkpoint")
	}
	var logged bool
	o.Spec, logged, err = readSpec(o.Spec, filepath.Join(m.config.bundle(namespace, id), criuConfig))
	if err != nil {
		return nil, err
	}
	bundle, err := shims.NewBundle(ctx, m.config.work(), m.config.bundles(), id, o.Spec)
	if err != nil {
		return nil, err
	}
	t := &task{process{m.shim, id, ""}, namespace}
	r := request(bundle.Path, id, o)
	pid, err := m.create(ctx, r, logged)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create task: %w", err), t.undo(ctx), bundle.Delete())
	}
	m.add(ctx, t, pid)
	m.shim.held.Hold(id, fifos.Outputs(r.Bundle, r.Stdout, r.Stderr, r.Terminal))
	if !o.RestoreFromPath && !restored {
		return t, nil
	}
	err = restoreFiles(ctx, bundle.Path, o.Checkpoint)
	if err == nil && !restored {
		err = t.Start(ctx)
	}
	if err != nil {
		_, failed := m.Delete(ctx, id)
		return nil, errors.Join(fmt.Errorf("restore task: %w", err), failed)
	}
	return t, nil
}

// create creates a container in the shim and returns its first process. containerd gets no streams of a container with
// a log: create changes the request so.
func (m *Manager) create(ctx context.Context, r *taskapi.CreateTaskRequest, logged bool) (pid uint32, err error) {
	release, err := fifos.HoldOutput(ctx, r)
	if err == nil && logged {
		err = fifos.SkipInput(ctx, r.Stdin)
		release() // containerd sees the end of an empty output
		if err == nil {
			release, err = fifos.Make(r)
		}
	}
	if err != nil {
		return 0, err
	}
	defer release()
	err = m.shim.call(ctx, func(shim taskapi.TTRPCTaskService, repeated bool) error {
		response, err := shim.Create(ctx, r)
		if repeated && errdefs.IsAlreadyExists(errgrpc.ToNative(err)) {
			state, err := shim.State(ctx, &taskapi.StateRequest{ID: r.ID}) // the shim before has created it
			pid = state.GetPid()
			return err
		}
		pid = response.GetPid()
		return err
	})
	return pid, err
}

// request is the request to create a container.
func request(bundle, id string, o runtime.CreateOpts) *taskapi.CreateTaskRequest {
	options := o.TaskOptions
	if options == nil || options.GetValue() == nil {
		options = o.RuntimeOptions
	}
	r := &taskapi.CreateTaskRequest{
		ID: id, Bundle: bundle, Stdin: o.IO.Stdin, Stdout: o.IO.Stdout, Stderr: o.IO.Stderr, Terminal: o.IO.Terminal,
		Checkpoint: o.Checkpoint, Options: typeurl.MarshalProto(options),
	}
	for _, m := range o.Rootfs {
		r.Rootfs = append(r.Rootfs,
			&types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return r
}

// restoreFiles unpacks the changed files of a checkpoint into a container's root file system.
func restoreFiles(ctx context.Context, bundle, checkpoint string) error {
	packed, err := os.Open(filepath.Join(filepath.Dir(checkpoint), "rootfs-diff.tar"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer packed.Close()
	rootfs := filepath.Join(bundle, "rootfs")
	content, err := unpack.Limits{}.Archive(packed, rootfs)
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = archive.Apply(ctx, rootfs, content)
	return err
}

// Get implements runtime.PlatformRuntime.
func (m *Manager) Get(ctx context.Context, id string) (runtime.Task, error) {
	if task, ok := m.deleted(id); ok {
		return task, nil
	}
	if !m.owns(id) {
		return m.stock.Get(ctx, id)
	}
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	return &task{process{m.shim, id, ""}, namespace}, nil
}

// Tasks implements runtime.PlatformRuntime.
func (m *Manager) Tasks(ctx context.Context, all bool) ([]runtime.Task, error) {
	tasks, err := m.stock.Tasks(ctx, all)
	if err != nil {
		return nil, err
	}
	bundles, err := filepath.Glob(filepath.Join(m.config.bundles(), "*", "*"))
	if err != nil {
		return nil, err
	}
	current, _ := namespaces.Namespace(ctx)
	for _, path := range bundles {
		id, namespace := filepath.Base(path), filepath.Base(filepath.Dir(path))
		if m.owns(id) && (all || namespace == current) {
			tasks = append(tasks, &task{process{m.shim, id, ""}, namespace})
		}
	}
	return tasks, nil
}

// Delete implements runtime.PlatformRuntime.
func (m *Manager) Delete(ctx context.Context, id string) (*runtime.Exit, error) {
	if task, ok := m.deleted(id); ok {
		m.mu.Lock()
		delete(m.ended, id) // its file stays for a while
		m.mu.Unlock()
		return &task.exit, nil
	}
	if !m.owns(id) {
		return m.stock.Delete(ctx, id)
	}
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	exit, err := (&process{m.shim, id, ""}).Delete(ctx)
	if errdefs.IsNotFound(err) { // a shim that has ended deleted it
		exit, err = m.readExit(namespace, id)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("delete task %s: %w", id, err)
	}
	bundle := &shims.Bundle{ID: id, Path: m.config.bundle(namespace, id), Namespace: namespace}
	if failed := bundle.Delete(); failed != nil {
		return nil, fmt.Errorf("delete bundle of task %s: %w", id, failed)
	}
	m.remove(id)
	m.dropExit(namespace, id)
	return exit, err
}
