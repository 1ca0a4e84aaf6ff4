package joined

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/bench/controlplane"
	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/test/kubelet"
)

const (
	image    = "example.com/workload:1"
	patience = 3 * time.Minute
	// settle is how long to wait after a change, until garbage collection and write-back have ended.
	settle = 15 * time.Second
	// follow is how long to count requests after a start. The last ones are events.
	follow = 5 * time.Second
)

// Options of a measurement.
type Options struct {
	// Dir holds all files. Its path must be short, because unix sockets lie below it.
	Dir string
	// Binary is the path of berth, Archive the image of the pods.
	Binary, Archive string
	Pods, Rounds    int
	// Idle is how long the nodes are measured while nothing happens.
	Idle time.Duration
	// Lines are lines of the KubeletConfiguration of all nodes. The default is a low threshold of memory.
	Lines string
	// Objects lists numbers: for each, a pod mounts so many ConfigMaps and so many Secrets. If it is empty, Measure
	// omits this part.
	Objects []int
}

// Result is the result of one node.
type Result struct {
	// Took has for each round the time from the creation of the first pod until a watch has shown the last one as
	// Running.
	Took []time.Duration
	// Starts counts the requests of all rounds for the start of the pods. Idle counts the requests while all pods run
	// and nothing happens. The keys are verb and resource.
	Starts, Idle map[string]int
	// Agent is the agent's process. Runtime is zero if the agent contains the runtime.
	Agent, Runtime Use
	Watched        []Watched
}

// Use is the CPU time and memory of a process.
type Use struct {
	// Start is the CPU time that was used until all pods of all rounds were Running. Idle is the CPU time that was
	// used while nothing happened.
	Start, Idle time.Duration
	// RSS and Private are the memory of the idle process with all pods, in MB.
	RSS, Private float64
}

// Watched is the cost of a node with a pod that mounts ConfigMaps and Secrets.
type Watched struct {
	Objects int     `json:"objects"` // ConfigMaps and Secrets together
	Watches int     `json:"watches"` // watches of ConfigMaps and Secrets at the API server
	RSS     float64 `json:"rssMB"`   // memory of the agent
	Private float64 `json:"privateMB"`
}

// Measure starts a control plane on the same CPUs, and returns the results of Berth and of the kubelet.
func Measure(ctx context.Context, o Options) (ours, theirs Result, err error) {
	audit, err := newAudit(o.Dir)
	if err != nil {
		return ours, theirs, err
	}
	err = controlplane.Use(kubeapitest.Options{Controllers: true, Scheduler: true, APIServer: audit.flags()},
		func(c *kubeapitest.Cluster) (err error) {
			b := &bench{options: o, audit: audit, cluster: c, client: c.Client(), namespace: c.Namespace(), ours: &ours,
				theirs: &theirs}
			if b.address, err = kubelet.HostAddress(); err != nil {
				return err
			}
			return b.run(ctx)
		})
	return ours, theirs, err
}

// KubeletCgroup is the cgroup root of a kubelet's node.
const KubeletCgroup = "/berth-bench-kubelet"

// WithKubelet starts a control plane and a kubelet with o.Lines in its configuration, calls use with the name of its
// node, and ends both.
func WithKubelet(ctx context.Context, o Options,
	use func(client kubernetes.Interface, namespace, node string) error) error {
	return controlplane.Use(kubeapitest.Options{Controllers: true, Scheduler: true},
		func(c *kubeapitest.Cluster) (err error) {
			b := &bench{options: o, cluster: c, client: c.Client()}
			if b.address, err = kubelet.HostAddress(); err != nil {
				return err
			}
			n, err := b.startKubelet(ctx)
			if err != nil {
				return err
			}
			return errors.Join(use(c.Client(), c.Namespace(), n.name), n.end())
		})
}

// bench is one measurement.
type bench struct {
	options      Options
	audit        *audit
	cluster      *kubeapitest.Cluster
	client       kubernetes.Interface
	namespace    string
	address      string
	ours, theirs *Result
}

func (b *bench) run(ctx context.Context) (err error) {
	var nodes []*node
	for _, start := range []func(context.Context) (*node, error){b.startBerth, b.startKubelet} {
		n, err := start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.end()) }()
		nodes = append(nodes, n)
	}
	nodes[0].result, nodes[1].result = b.ours, b.theirs
	if err := b.rounds(ctx, nodes); err != nil {
		return err
	}
	return b.objects(ctx, nodes)
}

// rounds starts pods on the nodes in turn. The pods of the last round stay for the idle time of both nodes.
func (b *bench) rounds(ctx context.Context, nodes []*node) error {
	if b.options.Rounds == 0 {
		return nil
	}
	for i := range b.options.Rounds + 1 { // the first is a warm-up
		for _, n := range nodes {
			if err := b.round(ctx, n, i > 0); err != nil {
				return fmt.Errorf("on node %s: %w", n.name, err)
			}
			if i == b.options.Rounds {
				continue
			}
			if err := b.removePods(ctx, n); err != nil {
				return err
			}
		}
	}
	if err := b.idle(ctx, nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := b.removePods(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// round starts the pods of a round on a node, and adds its cost to the node's result unless it is the warm-up.
func (b *bench) round(ctx context.Context, n *node, counts bool) error {
	before, err := n.cpu()
	if err != nil {
		return err
	}
	mark, err := b.audit.mark()
	if err != nil {
		return err
	}
	took, err := b.startPods(ctx, n)
	if err != nil {
		return err
	}
	after, err := n.cpu()
	if err != nil {
		return err
	}
	if err := retry.Sleep(ctx, follow); err != nil || !counts {
		return err
	}
	requests, err := b.audit.since(mark, n.made)
	if err != nil {
		return err
	}
	r := n.result
	r.Took, r.Starts = append(r.Took, took), add(r.Starts, requests)
	r.Agent.Start += after.agent - before.agent
	r.Runtime.Start += after.runtime - before.runtime
	return nil
}

// idle measures all nodes at the same time while nothing happens.
func (b *bench) idle(ctx context.Context, nodes []*node) error {
	if err := retry.Sleep(ctx, settle); err != nil {
		return err
	}
	mark, err := b.audit.mark()
	if err != nil {
		return err
	}
	before := map[*node]cpuTimes{}
	for _, n := range nodes {
		if before[n], err = n.cpu(); err != nil {
			return err
		}
	}
	if err := retry.Sleep(ctx, b.options.Idle); err != nil {
		return err
	}
	for _, n := range nodes {
		after, err := n.cpu()
		if err != nil {
			return err
		}
		r := n.result
		r.Agent.Idle, r.Runtime.Idle = after.agent-before[n].agent, after.runtime-before[n].runtime
		if r.Agent.RSS, r.Agent.Private, err = proc.Memory(n.agent); err != nil {
			return err
		}
		if n.runtime != 0 {
			if r.Runtime.RSS, r.Runtime.Private, err = proc.Memory(n.runtime); err != nil {
				return err
			}
		}
		if r.Idle, err = b.audit.since(mark, n.made); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until a node is ready and has no taints.
func (b *bench) ready(ctx context.Context, name string) error {
	return poll(ctx, "node "+name+" is ready", func(ctx context.Context) (bool, error) {
		object, err := b.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the node does not exist yet
		}
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue && len(object.Spec.Taints) == 0, nil
			}
		}
		return false, nil
	})
}

// poll calls check until it returns true or an error. The text says what the caller waits for.
func poll(ctx context.Context, text string, check func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, check)
	if wait.Interrupted(err) {
		return fmt.Errorf("wait until %s: %w", text, err)
	}
	return err
}

// write writes a file, and makes its directory.
func write(path, format string, args ...any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600)
}
