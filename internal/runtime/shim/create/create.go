package create

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	_ "github.com/opencontainers/cgroups/devices" // sets the rules of devices
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/selinux/go-selinux"
	"github.com/sirupsen/logrus"

	"github.com/berth-run/berth/internal/base/sysmon"
)

// Container says what to create.
type Container struct {
	ID string
	// Root is the directory of runc's state, Bundle that of the container's specification.
	Root, Bundle string
	// NoPivotRoot and NoNewKeyring are the options of "runc create" with these names.
	NoPivotRoot, NoNewKeyring bool
	// Stdio are the standard input, output and error of the process.
	Stdio [3]*os.File
}

// Can reports whether Run can create a container. It runs no hooks, makes no terminal, and serves no listener of
// seccomp's notifications: runc has to.
func Can(spec *specs.Spec) bool {
	if !enters || spec.Hooks != nil || spec.Process == nil || spec.Process.Terminal {
		return false
	}
	return spec.Linux == nil || spec.Linux.IntelRdt == nil &&
		(spec.Linux.Seccomp == nil || spec.Linux.Seccomp.ListenerPath == "")
}

// Run creates a container, and returns its first process, which waits until it is started. Nothing of the container is
// left after an error. The caller leaves unknown children alone meanwhile: libcontainer waits for those that it starts.
func Run(c Container, spec *specs.Spec) (pid int, err error) {
	config, err := configOf(c, spec)
	if err != nil {
		return 0, err
	}
	process, err := processOf(c, spec.Process)
	if err != nil {
		return 0, err
	}
	container, err := libcontainer.Create(c.Root, c.ID, config)
	if err != nil {
		return 0, err
	}
	if err := container.Start(process); err != nil {
		return 0, errors.Join(err, container.Destroy())
	}
	return process.Pid()
}

// Read reads a container's specification.
func Read(bundle string) (*specs.Spec, error) {
	content, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		return nil, fmt.Errorf("read the container's specification: %w", err)
	}
	return &spec, nil
}

// configOf is the container's configuration for libcontainer.
func configOf(c Container, spec *specs.Spec) (*configs.Config, error) {
	// libcontainer takes the working directory of its process for the bundle, which it is for runc. The kernel names
	// that without links.
	bundle, err := filepath.EvalSymlinks(c.Bundle)
	if err != nil {
		return nil, err
	}
	own := *spec
	if own.Root != nil && !filepath.IsAbs(own.Root.Path) {
		root := *own.Root
		root.Path = filepath.Join(bundle, root.Path)
		own.Root = &root
	}
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{
		CgroupName: c.ID, NoPivotRoot: c.NoPivotRoot, NoNewKeyring: c.NoNewKeyring, Spec: &own,
	})
	if err != nil {
		return nil, err
	}
	config.Labels[len(config.Labels)-1] = "bundle=" + bundle
	return config, nil
}

// processOf is the container's first process for libcontainer.
func processOf(c Container, p *specs.Process) (*libcontainer.Process, error) {
	switch {
	case !filepath.IsAbs(p.Cwd):
		return nil, errors.New("the working directory must be an absolute path")
	case len(p.Args) == 0:
		return nil, errors.New("args must not be empty")
	case p.SelinuxLabel != "" && !selinux.GetEnabled():
		return nil, errors.New("selinux label is specified in config, but selinux is disabled or not supported")
	}
	process := &libcontainer.Process{
		Args: p.Args, Env: p.Env, UID: int(p.User.UID), GID: int(p.User.GID), Cwd: p.Cwd, Label: p.SelinuxLabel,
		NoNewPrivileges: &p.NoNewPrivileges, AppArmorProfile: p.ApparmorProfile, Scheduler: p.Scheduler,
		IOPriority: p.IOPriority, Init: true, LogLevel: strconv.Itoa(int(logrus.InfoLevel)),
		Stdin: c.Stdio[0], Stdout: c.Stdio[1], Stderr: c.Stdio[2],
	}
	for _, gid := range p.User.AdditionalGids {
		process.AdditionalGroups = append(process.AdditionalGroups, int(gid))
	}
	if all := p.Capabilities; all != nil {
		process.Capabilities = &configs.Capabilities{
			Bounding: all.Bounding, Effective: all.Effective, Inheritable: all.Inheritable,
			Permitted: all.Permitted, Ambient: all.Ambient,
		}
	}
	for _, limit := range p.Rlimits {
		number := slices.Index(limits, limit.Type)
		if number < 0 {
			return nil, fmt.Errorf("wrong rlimit value: %s", limit.Type)
		}
		process.Rlimits = append(process.Rlimits, configs.Rlimit{Type: number, Hard: limit.Hard, Soft: limit.Soft})
	}
	var err error
	process.CPUAffinity, err = configs.ConvertCPUAffinity(p.ExecCPUAffinity)
	return process, err
}

// limits has the names of resource limits at the kernel's numbers (getrlimit(2)).
var limits = []string{
	"RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_DATA", "RLIMIT_STACK", "RLIMIT_CORE", "RLIMIT_RSS", "RLIMIT_NPROC",
	"RLIMIT_NOFILE", "RLIMIT_MEMLOCK", "RLIMIT_AS", "RLIMIT_LOCKS", "RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE",
	"RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_RTTIME",
}

// Frugal gives one thread for Go code to the processes that Run starts, up to their programs: their steps follow each
// other, and further threads only take memory. libcontainer passes GOMAXPROCS of this process on, so Frugal sets it in
// the environment, unless somebody has. It returns what it has set, NAME=VALUE, and how to unset it.
func Frugal() (variable string, undo func()) {
	const name, value = "GOMAXPROCS", "1"
	if _, set := os.LookupEnv(name); set || os.Setenv(name, value) != nil {
		return "", func() {}
	}
	return name + "=" + value, func() { _ = os.Unsetenv(name) }
}

// Init is the first process of a container if this process was started as one. Then it does not return.
func Init() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		// The shim starts this process with the slack of a monitor. The container's program has the slack of the
		// thread that executes it, which on a busy machine may be another one than the first.
		_ = sysmon.RestoreThread() // a slack is only a delay
		libcontainer.Init()
	}
}
