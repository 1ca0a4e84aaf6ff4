package joined

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/berth-run/berth/bench/controlplane"
	"github.com/berth-run/berth/bench/fakenode"
	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/internal/agent"
	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/agent/reset"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri/critest/fake"
	"github.com/berth-run/berth/test/kubelet"
)

const (
	manyPrefix = "many-"
	manyCgroup = "/berth-bench-nodes"
	// manyPort is the port of the first node. The ports are below those that the kernel gives out by itself.
	manyPort = 19000
	// manyAtOnce is how many agents start or end at once, and how many pods are created at once.
	manyAtOnce = 8
	// manyPatience bounds the start of all pods.
	manyPatience = 10 * time.Minute
	// podsANode is how many pods each node has.
	podsANode = 10
)

// sizes are the numbers of nodes of Berth that are measured, ascending.
func sizes() []int { return []int{1, 50, 100, 200} }

// Many is the cost of many nodes of Berth, and of one with a kubelet for comparison.
type Many struct {
	Pods    int       `json:"podsANode"`
	Seconds float64   `json:"idleSeconds"`
	Berth   []ManyRow `json:"berth"`
	Kubelet ManyRow   `json:"kubelet"`
}

// ManyRow is the cost of some nodes together.
type ManyRow struct {
	Nodes int `json:"nodes"`
	// Requests counts the nodes' requests while nothing happens, by verb and resource.
	Requests map[string]int `json:"requestsIdle"`
	// Private is the memory in MB that no file backs. For Berth it is without what the process had before the first
	// agent, and includes the fake runtimes.
	Private float64 `json:"privateMB"`
	// CPU is the CPU time while nothing happens, in percent of a core. For Berth it includes the fake runtimes.
	CPU float64 `json:"cpuIdlePercentOfACore"`
}

// MeasureMany starts a control plane on the same CPUs. It runs many agents in this process, each of them a node with a
// fake runtime of its own, and afterwards one kubelet with a fake runtime in this process. Both are measured for some
// time while nothing happens. The program berth removes what the kubelet leaves.
func MeasureMany(ctx context.Context, berth string, idle time.Duration) (m Many, err error) {
	m.Pods, m.Seconds = podsANode, idle.Seconds()
	binary, err := filepath.Abs(berth)
	if err != nil {
		return m, err
	}
	dir, err := os.MkdirTemp("", "bn") // short: unix sockets lie below it
	if err != nil {
		return m, err
	}
	defer func() {
		if err == nil { // after an error, a process may still use the directory
			err = os.RemoveAll(dir)
		}
	}()
	audit, err := newAudit(dir)
	if err != nil {
		return m, err
	}
	restore, err := allowWatches()
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	err = controlplane.Use(kubeapitest.Options{Controllers: true, APIServer: audit.flags()},
		func(c *kubeapitest.Cluster) (err error) {
			log, err := os.Create(filepath.Join(dir, "agents.log"))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, log.Close()) }()
			n := &many{idle: idle, log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
				bench: bench{options: Options{Dir: dir, Binary: binary}, audit: audit, cluster: c,
					client: c.Client(), namespace: c.Namespace()}}
			if n.address, err = kubelet.HostAddress(); err != nil {
				return err
			}
			if err := n.ofBerth(ctx, &m); err != nil {
				return err
			}
			return n.ofKubelet(ctx, &m)
		})
	return m, err
}

// allowWatches raises the number of inotify instances of this user for the measurement: each agent needs some, and the
// default of the kernel is 128.
func allowWatches() (restore func() error, err error) {
	const path, enough = "/proc/sys/fs/inotify/max_user_instances", "16384"
	before, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(path, before, 0o644) }, os.WriteFile(path, []byte(enough), 0o644)
}

// many is a measurement of many nodes.
type many struct {
	bench
	idle    time.Duration
	log     *slog.Logger
	waiting []*inProcess // not started yet
	nodes   []*inProcess
}

// inProcess is a node whose agent and runtime are in this process.
type inProcess struct {
	name       string
	socket     string // of the runtime
	flags      config.Flags
	end        context.CancelFunc // of the agent
	ended      chan error
	endRuntime func()
}

// ofBerth measures the nodes of Berth.
func (b *many) ofBerth(ctx context.Context, m *Many) (err error) {
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.prepare(); err != nil {
		return err
	}
	debug.FreeOSMemory() // what the start of the control plane has left
	_, base, err := proc.Memory(os.Getpid())
	if err != nil {
		return err
	}
	for _, size := range sizes() {
		if err := b.grow(ctx, size); err != nil {
			return fmt.Errorf("start %d nodes: %w", size, err)
		}
		row := ManyRow{Nodes: size}
		if err := b.measure(ctx, os.Getpid(), isMany, &row); err != nil {
			return err
		}
		row.Private -= base
		m.Berth = append(m.Berth, row)
	}
	return nil
}

func isMany(user string) bool { return strings.HasPrefix(user, "system:node:"+manyPrefix) }

// ofKubelet measures one kubelet.
func (b *many) ofKubelet(ctx context.Context, m *Many) (err error) {
	socket := filepath.Join(b.options.Dir, "k.sock")
	_, end, err := fakenode.Start(socket)
	if err != nil {
		return err
	}
	defer end()
	n, err := b.kubeletOn(ctx, "unix://"+socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.end()) }()
	if err := b.fill(ctx, n.name); err != nil {
		return err
	}
	m.Kubelet.Nodes = 1
	return b.measure(ctx, n.agent, n.made, &m.Kubelet)
}

// measure waits until the nodes are idle, and measures a process and the requests of some users.
func (b *many) measure(ctx context.Context, pid int, of func(user string) bool, row *ManyRow) error {
	if err := retry.Sleep(ctx, 2*settle); err != nil {
		return err
	}
	mark, err := b.audit.mark()
	if err != nil {
		return err
	}
	before, err := proc.CPU(pid)
	if err != nil {
		return err
	}
	if err := retry.Sleep(ctx, b.idle); err != nil {
		return err
	}
	after, err := proc.CPU(pid)
	if err != nil {
		return err
	}
	row.CPU = (after.Own - before.Own).Seconds() / b.idle.Seconds() * 100
	if _, row.Private, err = proc.Memory(pid); err != nil {
		return err
	}
	row.Requests, err = b.audit.since(mark, of)
	return err
}

// grow starts agents and their pods until there are size nodes.
func (b *many) grow(ctx context.Context, size int) error {
	var names []string
	var ready errgroup.Group
	ready.SetLimit(manyAtOnce)
	for len(b.nodes) < size && ctx.Err() == nil {
		n := b.waiting[0]
		if err := b.start(n); err != nil {
			return err
		}
		b.waiting, b.nodes = b.waiting[1:], append(b.nodes, n)
		names = append(names, n.name)
		ready.Go(func() error { return b.ready(ctx, n.name) }) // waits if many are not ready yet
	}
	if err := ready.Wait(); err != nil {
		return err
	}
	return b.fill(ctx, names...)
}

// prepare writes the files of all nodes. They lie in one directory, which each agent watches for new certificates.
func (b *many) prepare() error {
	address, err := netip.ParseAddr(b.address)
	if err != nil {
		return err
	}
	for i := range slices.Max(sizes()) {
		n := &inProcess{name: fmt.Sprint(manyPrefix, i), ended: make(chan error, 1)}
		n.socket = filepath.Join(b.options.Dir, n.name+".sock")
		dir, file, err := b.config(n.name, manyCgroup+"/"+n.name, manyPort+i,
			fmt.Sprintf("containerRuntimeEndpoint: %q\nmakeIPTablesUtilChains: false\n", "unix://"+n.socket))
		if err != nil {
			return err
		}
		n.flags = config.Flags{ConfigFile: file, RootDir: filepath.Join(dir, "r"), HostnameOverride: n.name,
			NodeIPs: []netip.Addr{address}, Kubeconfig: b.cluster.NodeKubeconfig(n.name)}
		b.waiting = append(b.waiting, n)
	}
	return nil
}

// start starts the runtime and the agent of a node.
func (b *many) start(n *inProcess) (err error) {
	c, _, err := config.Load(n.flags)
	if err != nil {
		return err
	}
	if _, n.endRuntime, err = fakenode.Start(n.socket); err != nil {
		return err
	}
	a := agent.New(agent.Options{Config: c, Flags: n.flags, Runtimes: kind.All{}, Version: "bench",
		Verbosity: func(int) {}, Log: b.log.With("node", n.name)})
	ctx, cancel := context.WithCancel(context.Background())
	n.end = cancel
	go func() { n.ended <- a.Run(ctx) }()
	return nil
}

// fill creates the pods of nodes and waits until they run.
func (b *many) fill(ctx context.Context, nodes ...string) error {
	pods := b.client.CoreV1().Pods(b.namespace)
	var creating errgroup.Group
	creating.SetLimit(manyAtOnce)
	for _, node := range nodes {
		for i := range podsANode {
			creating.Go(func() error {
				_, err := pods.Create(ctx, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i)},
					Spec: corev1.PodSpec{
						NodeName: node, HostNetwork: true, TerminationGracePeriodSeconds: new(int64(0)),
						Containers: []corev1.Container{{Name: "app", Image: fake.Image,
							ImagePullPolicy: corev1.PullNever, Args: []string{"sleep"}}},
					},
				}, metav1.CreateOptions{})
				return err
			})
		}
	}
	if err := creating.Wait(); err != nil {
		return err
	}
	left, err := 0, error(nil)
	running := func(ctx context.Context) (bool, error) {
		left, err = notRunning(ctx, pods)
		return left == 0, err
	}
	err = wait.PollUntilContextTimeout(ctx, 2*time.Second, manyPatience, false, running)
	if wait.Interrupted(err) {
		return fmt.Errorf("%d pods do not run: %w", left, err)
	}
	return err
}

// notRunning counts the pods that do not run, of all nodes.
func notRunning(ctx context.Context, pods typed.PodInterface) (left int, err error) {
	list, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, err
	}
	for i := range list.Items {
		if list.Items[i].Status.Phase != corev1.PodRunning {
			left++
		}
	}
	return left, nil
}

// close ends all agents and removes what they have made.
func (b *many) close() error {
	var ending errgroup.Group
	ending.SetLimit(manyAtOnce)
	errs := make([]error, len(b.nodes))
	for i, n := range b.nodes {
		ending.Go(func() error { errs[i] = b.remove(n); return nil })
	}
	_ = ending.Wait() // all errors are in errs
	kubelet.RemoveCgroups(manyCgroup)
	// Each agent had made this process write crash reports into its directory, and the last one's file is still open:
	// the file system below could not be unmounted.
	errs = append(errs, debug.SetCrashOutput(nil, debug.CrashOptions{}))
	return errors.Join(errs...)
}

// remove ends a node's agent and removes what it has made.
func (b *many) remove(n *inProcess) error {
	defer n.endRuntime()
	n.end()
	err := <-n.ended
	flags := n.flags
	flags.Apart = true
	c, _, failed := config.Load(flags)
	if failed != nil {
		return errors.Join(err, failed)
	}
	err = errors.Join(err, reset.Run(context.Background(), reset.Options{Config: c, Runtimes: kind.All{},
		Log: b.log}))
	if err != nil {
		return fmt.Errorf("end node %s: %w", n.name, err)
	}
	return nil
}
