package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/pidfd"
	"github.com/berth-run/berth/internal/base/poll"
)

// Group is the cgroup of a container: one on cgroup v2, one for each controller on v1. Only one of them is set.
type Group struct {
	v1 cgroup1.Cgroup
	v2 *cgroup2.Manager
	// memory is the file that counts OOM kills. Empty: the memory controller is not in use.
	memory string
}

// unified is the name of the only hierarchy of cgroup v2.
const unified = ""

// Paths finds the cgroup of a container by its first process: the path in each hierarchy.
func (f *Finder) Paths(pid int) (map[string]string, error) {
	if cgroups.Mode() == cgroups.Unified {
		path, err := cgroup2.PidGroupPath(pid)
		return map[string]string{unified: path}, err
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	all, err := cgroup1.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, fmt.Errorf("find the cgroup of process %d: %w", pid, err)
	}
	paths := map[string]string{}
	for name, root := range f.roots {
		if path, ok := all[name]; ok {
			if paths[name], err = below(root, path); err != nil {
				return nil, err
			}
		}
	}
	return paths, nil
}

// Open opens the cgroup of a container. Each path must name the container: the kernel shows the root cgroup for a
// process that is ending, and to kill the processes there would end the machine.
func (f *Finder) Open(container string, paths map[string]string) (*Group, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("open cgroup of container %s: %w", container, os.ErrNotExist)
	}
	for _, path := range paths {
		if container == "" || !strings.Contains(filepath.Base(path), container) {
			return nil, fmt.Errorf("open cgroup of container %s: %q is not its own", container, path)
		}
	}
	if path, ok := paths[unified]; ok {
		v2, err := cgroup2.Load(path)
		return &Group{v2: v2, memory: filepath.Join("/sys/fs/cgroup", path, "memory.events")}, err
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	v1, err := cgroup1.Load(func(name cgroup1.Name) (string, error) {
		if path, ok := paths[string(name)]; ok {
			return path, nil
		}
		return "", cgroup1.ErrControllerNotActive
	}, cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) { return f.subsystems, nil }))
	if err != nil {
		return nil, err
	}
	g := &Group{v1: v1}
	if path, ok := paths[string(cgroup1.Memory)]; ok {
		g.memory = filepath.Join("/sys/fs/cgroup/memory", path, "memory.oom_control")
	}
	return g, nil
}

// Stat reads the counters of a container, in containerd's format.
func (g *Group) Stat() (any, error) {
	if g.v2 != nil {
		return g.v2.Stat()
	}
	return g.v1.Stat(cgroup1.IgnoreNotExist)
}

// Processes lists the processes in a container.
func (g *Group) Processes() ([]int, error) {
	var pids []int
	if g.v2 != nil {
		procs, err := g.v2.Procs(true)
		for _, pid := range procs {
			pids = append(pids, int(pid))
		}
		return pids, err
	}
	procs, err := g.v1.Processes(cgroup1.Devices, true)
	for _, process := range procs {
		pids = append(pids, process.Pid)
	}
	return pids, err
}

// Kill sends SIGKILL to all processes of a container. It repeats until there is none but zombies, since processes may
// start others meanwhile.
func (g *Group) Kill() error {
	if g.v2 != nil {
		return g.v2.Kill()
	}
	pace := poll.Pace{First: time.Millisecond, Limit: 10 * time.Second}
	var err error
	alive := 0
	ended := pace.Until(func() (done bool) {
		var pids []int
		if pids, err = g.Processes(); err != nil {
			return true
		}
		alive = 0
		for _, pid := range pids {
			if killProcess(pid) {
				alive++
			}
		}
		return alive == 0
	})
	if !ended {
		return fmt.Errorf("kill processes of container: %d still run after %s", alive, pace.Limit)
	}
	return err
}

// killProcess sends SIGKILL to a process, and returns false if it has ended.
func killProcess(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return !pidfd.Ended(fd) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// Frozen reports whether the processes of a container are paused.
func (g *Group) Frozen() bool {
	if g.v2 == nil {
		return g.v1.State() == cgroup1.Frozen
	}
	content, err := os.ReadFile(filepath.Join(filepath.Dir(g.memory), "cgroup.freeze"))
	return err == nil && strings.TrimSpace(string(content)) == "1"
}

// OOMKills counts the processes of a container that the kernel has killed for lack of memory.
func (g *Group) OOMKills() uint64 {
	content, err := os.ReadFile(g.memory)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		if text, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
			return n
		}
	}
	return 0
}

// OOMWatch notifies of OOM kills: by an eventfd for each container on cgroup v1, by one inotify for all on v2.
type OOMWatch struct {
	mu      sync.Mutex
	inotify *inotify.Instance
	notify  map[inotify.Watch]func() bool
}

// Add calls notify after each OOM kill in a cgroup, and perhaps without one, until the cgroup is removed. notify
// returns whether it has found one.
func (w *OOMWatch) Add(g *Group, notify func() bool) error {
	if g.memory == "" {
		return nil
	}
	if g.v2 != nil {
		return w.addFile(g.memory, notify)
	}
	fd, err := g.v1.OOMEventFD()
	if err != nil {
		return fmt.Errorf("watch for OOM kills: %w", err)
	}
	if err := unix.SetNonblock(int(fd), true); err != nil {
		return err
	}
	events := os.NewFile(fd, "oom")
	go func() {
		defer events.Close()
		for counter := make([]byte, 8); ; {
			if _, err := events.Read(counter); err != nil {
				return
			}
			if _, err := os.Stat(g.memory); err != nil {
				return // the last event is the removal
			}
			// The kernel notifies when the memory is used up, and looks for a process to kill afterwards.
			poll.Pace{First: time.Millisecond, Slowest: time.Second, Limit: time.Second}.Until(notify)
		}
	}()
	return nil
}

func (w *OOMWatch) addFile(file string, notify func() bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inotify == nil {
		instance, err := inotify.Open()
		if err != nil {
			return fmt.Errorf("watch for OOM kills: %w", err)
		}
		w.inotify, w.notify = instance, map[inotify.Watch]func() bool{}
		go w.run(instance)
	}
	watch, err := w.inotify.Add(file, unix.IN_MODIFY)
	if err != nil {
		return fmt.Errorf("watch for OOM kills: %w", err)
	}
	w.notify[watch] = notify
	return nil
}

// run reads the events of inotify for ever.
func (w *OOMWatch) run(instance *inotify.Instance) {
	buffer := make([]byte, 4<<10)
	for {
		events, err := instance.Read(buffer)
		if err != nil {
			return
		}
		for _, e := range events {
			w.mu.Lock()
			notify := w.notify[e.Watch]
			if e.Mask&unix.IN_IGNORED != 0 {
				delete(w.notify, e.Watch)
			}
			w.mu.Unlock()
			if notify != nil {
				notify()
			}
		}
	}
}
