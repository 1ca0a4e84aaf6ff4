package joined

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/test/containerd"
	"github.com/berth-run/berth/test/kubelet"
)

// node is a node of the cluster.
type node struct {
	name           string
	result         *Result
	agent, runtime int // process IDs; runtime is 0 if the agent contains the runtime
	// end ends the node's agent and removes everything of the node from the machine.
	end func() error
}

// cpuTimes are the CPU times of a node's processes so far.
type cpuTimes struct{ agent, runtime time.Duration }

func (n *node) cpu() (t cpuTimes, err error) {
	agent, err := proc.CPU(n.agent)
	if err != nil || n.runtime == 0 {
		return cpuTimes{agent: agent.Own}, err
	}
	runtime, err := proc.CPU(n.runtime)
	return cpuTimes{agent: agent.Own, runtime: runtime.Own}, err
}

func (n *node) made(user string) bool { return user == "system:node:"+n.name }

// config writes a node's configuration. Both nodes have the same, except for paths, ports, networks and certificates.
// The port is below those that the kernel gives out by itself.
func (b *bench) config(name, cgroup string, port int, more string) (dir, path string, err error) {
	dir = filepath.Join(b.options.Dir, name)
	cert, key := b.cluster.ServingCertificate(name, b.address, name)
	path = filepath.Join(dir, "config.yaml")
	more += cmp.Or(b.options.Lines, "evictionHard: {memory.available: 50Mi}\n")
	return dir, path, write(path, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %s/logs
cgroupRoot: %s
cgroupDriver: cgroupfs
port: %d
healthzPort: 0
maxPods: 110
failSwapOn: false
failCgroupV1: false
tlsCertFile: %s
tlsPrivateKeyFile: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
%s`, dir, cgroup, port, cert, key, b.cluster.CA(), more)
}

func (b *bench) startBerth(ctx context.Context) (*node, error) {
	const name = "berth"
	dir, config, err := b.config(name, "/berth-bench", 18990, "podCIDR: \"10.205.1.0/24,fd00:be:1::/64\"\n")
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "r")
	cmd := exec.Command(b.options.Binary, "agent", "--log-level", "warn", "--root-dir", root, "--config", config,
		"--kubeconfig", b.cluster.NodeKubeconfig(name), "--hostname-override", name, "--node-ip", b.address)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n := &node{name: name, agent: cmd.Process.Pid, end: func() error {
		err := cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait() // the error says that the signal ended it
		return errors.Join(err, resetRoot(b.options.Binary, root, config))
	}}
	err = b.ready(ctx, name)
	if err == nil {
		err = run(exec.CommandContext(ctx, b.options.Binary, "--root-dir", root, "image", "load", b.options.Archive))
	}
	if err != nil {
		return nil, errors.Join(err, n.end())
	}
	return n, nil
}

// startKubelet starts a kubelet and a containerd for it.
func (b *bench) startKubelet(ctx context.Context) (_ *node, err error) {
	dir := filepath.Join(b.options.Dir, "c")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	parts, err := containerd.Build(ctx, filepath.Join(b.options.Dir, "parts"), "tools", b.options.Archive)
	if err != nil {
		return nil, err
	}
	daemon, err := containerd.New(ctx,
		containerd.Options{Parts: parts, Dir: dir, Bridge: "berth-bench1", Subnet: "10.205.2.0/24"})
	if err != nil {
		return nil, err
	}
	n, err := b.kubeletOn(ctx, daemon.Endpoint())
	if err != nil {
		return nil, errors.Join(err, daemon.Close())
	}
	n.runtime = daemon.Pid()
	end := n.end
	n.end = func() error { return errors.Join(end(), daemon.Close()) }
	return n, nil
}

// kubeletOn starts a kubelet on a runtime.
func (b *bench) kubeletOn(ctx context.Context, endpoint string) (*node, error) {
	const name, cgroup = "kubelet", KubeletCgroup
	dir, config, err := b.config(name, cgroup, 18991,
		fmt.Sprintf("containerRuntimeEndpoint: %q\nmakeIPTablesUtilChains: false\n", endpoint))
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "r")
	k, err := kubelet.Start(kubelet.Options{
		Program: b.cluster.Program(), Config: config, CgroupRoot: cgroup, Kubeconfig: b.cluster.NodeKubeconfig(name),
		Root: root, Plugins: filepath.Join(dir, "plugins"), Node: name, Address: b.address, Log: log,
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	n := &node{name: name, agent: k.Pid(), end: func() error {
		k.End(unix.SIGTERM)
		err := errors.Join(log.Close(), resetRoot(b.options.Binary, root, config))
		// A kubelet mounts its root directory on itself, unless that is in a shared mount already.
		if gone := unix.Unmount(root, 0); !errors.Is(gone, unix.EINVAL) {
			err = errors.Join(err, gone)
		}
		kubelet.RemoveCgroups(cgroup)
		return err
	}}
	if err := b.ready(ctx, name); err != nil {
		return nil, errors.Join(err, n.end())
	}
	return n, nil
}

// resetRoot removes everything that a node has left on the machine. It works for a kubelet's node too.
func resetRoot(binary, root, config string) error {
	return run(exec.Command(binary, "reset", "--yes", "--root-dir", root, "--config", config))
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}
