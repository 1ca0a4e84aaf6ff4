// Package kubelet runs the kubelet of a test's control plane, for Berth to be held against.
package kubelet

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// Options of a Kubelet. All are required but Log.
type Options struct {
	// Program is the control plane's, which has the kubelet too.
	Program string
	// Config is the path of a KubeletConfiguration, CgroupRoot what it says, which is made.
	Config, CgroupRoot string
	Kubeconfig         string
	// Root directory, and one for volume plugins.
	Root, Plugins string
	// Node is the node's name, Address an address of this machine but loopback.
	Node, Address string
	// Devices: it goes on with what the root directory has of device plugins, and leaves
	// it there. A kubelet keeps that at a place of its own, which all share: one at a time.
	Devices bool
	Log     io.Writer
}

// Kubelet is one that runs.
type Kubelet struct {
	cmd     *exec.Cmd
	restore func()
}

// Start does not wait until the node is ready.
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
			_ = move(devicesOfAll, own) // without a plugin it keeps nothing
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

// devices is where a kubelet keeps which pods have which devices, below its root
// directory if that is the usual one.
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

// Pid is the kubelet's process.
func (k *Kubelet) Pid() int { return k.cmd.Process.Pid }

// End ends the kubelet with a signal; its pods run on. What it changed on the machine is as before.
// Another End does nothing.
func (k *Kubelet) End(s syscall.Signal) {
	if k.restore == nil {
		return
	}
	_ = k.cmd.Process.Signal(s) // one that has ended is what is wanted
	_ = k.cmd.Wait()            // its status tells of the signal
	k.restore()
	k.restore = nil
}

// makeCgroups makes a cgroup in all hierarchies: a kubelet expects its cgroupRoot.
func makeCgroups(name string) error {
	procs, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	for _, p := range procs {
		err = errors.Join(err, os.MkdirAll(filepath.Join(filepath.Dir(p), name), 0o755))
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new one of cgroup v1
		text, readErr := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", file))
		if readErr != nil {
			continue // cgroup v2 has them filled
		}
		err = errors.Join(err, os.WriteFile(filepath.Join("/sys/fs/cgroup/cpuset", name, file), text, 0o644))
	}
	return err
}

// RemoveCgroups takes away a cgroup and those in it in all hierarchies, where nothing runs in them.
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

// keepMachine notes what a kubelet changes outside of its root directory; restore
// takes it back.
func keepMachine() (restore func(), err error) {
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
			_ = os.Remove(path) // a directory that others use by now stays
		}
	}, nil
}

// HostAddress is one at which a node's server is reached: the API refuses a
// node whose address is loopback.
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
	return "", errors.New("this machine has no address but loopback")
}

// FreePort is one that nobody listens on, for a node's server.
func FreePort() (int, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
