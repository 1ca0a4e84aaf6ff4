// Package kubelet runs the real kubelet in a test's cluster, so that tests can compare Berth with it.
package kubelet

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// Options of a Kubelet. All are required, except Devices and Log.
type Options struct {
	// Program is the control plane's program, which contains the kubelet too.
	Program string
	// Config is the path of a KubeletConfiguration. CgroupRoot is its cgroupRoot, which Start makes.
	Config, CgroupRoot string
	Kubeconfig         string
	// Root is the root directory, Plugins the directory for volume plugins.
	Root, Plugins string
	// Node is the node's name. Address is an address of this machine, not a loopback address.
	Node, Address string
	// Devices makes the kubelet continue with the device allocations in the root directory, and leaves them there at
	// its end. Kubelets keep the allocations at one fixed path, so only one may run with Devices at a time.
	Devices bool
	Log     io.Writer
}

// Kubelet is a running kubelet.
type Kubelet struct {
	cmd     *exec.Cmd
	restore func()
}

// Start starts a kubelet. It does not wait until the node is ready.
func Start(o Options) (*Kubelet, error) {
	if err := makeCgroups(o.CgroupRoot); err != nil {
		return nil, err
	}
	restore, err := keepMachine()
	if err != nil {
		return nil, err
	}
	if o.Devices {
		machine := restore
		own := filepath.Join(o.Root, devices)
		restore = func() {
			_ = move(devicesOfAll, own) // the file does not exist if there was no device plugin
			machine()
		}
		if err := move(own, devicesOfAll); err != nil && !errors.Is(err, fs.ErrNotExist) {
			restore()
			return nil, err
		}
	}
	k := &Kubelet{restore: restore,
		cmd: exec.Command(o.Program, "kubelet", "--config", o.Config, "--kubeconfig", o.Kubeconfig,
			"--root-dir", o.Root, "--hostname-override", o.Node, "--node-ip", o.Address, "--volume-plugin-dir",
			o.Plugins)}
	k.cmd.Stdout, k.cmd.Stderr = o.Log, o.Log
	if err := k.cmd.Start(); err != nil {
		restore()
		return nil, err
	}
	return k, nil
}

// devices is the path of the kubelet's file about the devices of pods, below the default root directory. A kubelet with
// another root directory uses the same file.
const (
	devices      = "device-plugins/kubelet_internal_checkpoint"
	devicesOfAll = "/var/lib/kubelet/" + devices
)

func move(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o750), os.WriteFile(to, text, 0o600), os.Remove(from))
}

// Pid is the ID of the kubelet's process.
func (k *Kubelet) Pid() int { return k.cmd.Process.Pid }

// End ends the kubelet with a signal, and undoes its changes of the machine. Its pods continue to run. A second End
// does nothing.
func (k *Kubelet) End(s syscall.Signal) {
	if k.restore == nil {
		return
	}
	_ = k.cmd.Process.Signal(s) // fails only if the process has ended already
	_ = k.cmd.Wait()            // the error says that the signal ended it
	k.restore()
	k.restore = nil
}

// makeCgroups makes a cgroup in all hierarchies, because a kubelet expects that its cgroupRoot exists.
func makeCgroups(name string) error {
	procs, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	for _, p := range procs {
		err = errors.Join(err, os.MkdirAll(filepath.Join(filepath.Dir(p), name), 0o755))
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new cgroup of version 1
		text, readErr := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", file))
		if readErr != nil {
			continue // cgroup v2 fills them
		}
		err = errors.Join(err, os.WriteFile(filepath.Join("/sys/fs/cgroup/cpuset", name, file), text, 0o644))
	}
	return err
}

// RemoveCgroups removes a cgroup and the cgroups below it in all hierarchies. It leaves cgroups that have processes.
func RemoveCgroups(name string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*" + name)
	for _, root := range roots {
		var levels []string
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				levels = append(levels, path)
			}
			return nil
		})
		for _, level := range slices.Backward(levels) {
			_ = os.Remove(level)
		}
	}
}

// kept is the state of the machine before the first of the kubelets that run now. Kubelets of several tests run at the
// same time, and all change the same settings and directories: the last one to end undoes the changes.
var kept struct {
	sync.Mutex
	kubelets int
	restore  func()
}

// keepMachine counts a kubelet. restore counts its end.
func keepMachine() (restore func(), err error) {
	kept.Lock()
	defer kept.Unlock()
	if kept.kubelets == 0 {
		if kept.restore, err = recordMachine(); err != nil {
			return nil, err
		}
	}
	kept.kubelets++
	return func() {
		kept.Lock()
		defer kept.Unlock()
		if kept.kubelets--; kept.kubelets == 0 {
			kept.restore()
		}
	}, nil
}

// recordMachine records the settings and directories that a kubelet changes outside of its root directory. restore
// undoes the changes.
func recordMachine() (restore func(), err error) {
	values := map[string][]byte{}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		path := filepath.Join("/proc/sys", name)
		if values[path], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	absent := slices.DeleteFunc([]string{
		"/var/lib/kubelet/device-plugins/kubelet.sock", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet",
		"/var/log/containers", "/var/log/pods",
	}, func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	})
	return func() {
		for path, value := range values {
			_ = os.WriteFile(path, value, 0o644)
		}
		for _, path := range absent {
			_ = os.Remove(path) // fails if another program has a file there by now
		}
	}, nil
}

// HostAddress is an IPv4 address of this machine for a node. It is not a loopback address, because the API server
// refuses a node with one.
func HostAddress() (string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if ip := a.(*net.IPNet).IP; ip.To4() != nil && ip.IsGlobalUnicast() {
			return ip.String(), nil
		}
	}
	return "", errors.New("find an address for the node: this machine has only loopback addresses")
}
