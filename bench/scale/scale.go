package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/bench/fakenode"
	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest/fake"
)

const (
	// settle is how long to wait after a change, until garbage collection and write-back have ended.
	settle = 15 * time.Second
	// quiet is how long to wait after the last of some changes, so that their cost is complete.
	quiet = 2 * time.Second
	// patience bounds every wait. The measurement fails after it.
	patience = 3 * time.Minute
)

// Options of a measurement.
type Options struct {
	// Dir holds all files. Its path must be short, because unix sockets lie below it.
	Dir string
	// Binary is the path of berth.
	Binary string
	// Sizes are the numbers of pods, ascending.
	Sizes []int
	// Changes is how many pods are started, and how many containers end, one after the other, at each size.
	Changes int
	// Idle is how long the agent is measured while nothing happens.
	Idle time.Duration
}

// Measure starts an agent and measures it with each number of pods.
func Measure(ctx context.Context, o Options) (r Result, err error) {
	n, err := newNode(o)
	if err != nil {
		return r, err
	}
	r.Changes, r.Seconds = o.Changes, o.Idle.Seconds()
	defer func() { err = errors.Join(err, n.close()) }()
	for i, size := range o.Sizes {
		if err := n.grow(ctx, size); err != nil {
			return r, fmt.Errorf("start %d pods: %w", size, err)
		}
		row, err := n.measure(ctx, i*o.Changes)
		if err != nil {
			return r, fmt.Errorf("with %d pods: %w", size, err)
		}
		r.Rows = append(r.Rows, row)
	}
	return r, nil
}

// node is an agent and its runtime, which is in this process.
type node struct {
	Options
	runtime *fake.Runtime
	client  *cri.Client
	agent   *exec.Cmd
	undo    []func()
	pods    int

	calls chan call
}

// call is a call of the agent that begins or ends a change.
type call struct {
	method, pod string
	at          time.Time
}

func newNode(o Options) (_ *node, err error) {
	const most = 1 << 16 // more calls than a measurement makes
	n := &node{Options: o, calls: make(chan call, most)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	socket := filepath.Join(o.Dir, "fake.sock")
	runtime, end, err := fakenode.Start(socket)
	if err != nil {
		return nil, err
	}
	n.runtime, n.undo = runtime, []func(){end}
	for _, method := range []string{"CreateContainer", "StartContainer"} {
		n.runtime.Inject(fake.Fault{Method: method, Match: func(request any) bool {
			c := call{method: method, at: time.Now()}
			if create, ok := request.(*runtimeapi.CreateContainerRequest); ok {
				c.pod = create.GetSandboxConfig().GetMetadata().GetName()
			}
			n.calls <- c
			return false // the call is only recorded
		}})
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, "manifests"), 0o755); err != nil {
		return nil, err
	}
	n.client, err = cri.New("unix://"+socket, cri.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	n.undo = append(n.undo, func() { _ = n.client.Close() })
	config := fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+
		"containerRuntimeEndpoint: unix://%s\npodLogsDir: %s/logs\ncgroupRoot: /berth-bench-scale\nmaxPods: 2000\n"+
		"evictionHard: {memory.available: 50Mi}\n", socket, o.Dir)
	if err := os.WriteFile(n.config(), []byte(config), 0o600); err != nil {
		return nil, err
	}
	n.agent = exec.Command(o.Binary, "agent", "--hostname-override", "bench", "--log-level", "warn", "--root-dir",
		o.Dir, "--config", n.config())
	n.agent.Stderr = os.Stderr
	return n, n.agent.Start()
}

func (n *node) config() string { return filepath.Join(n.Dir, "config.yaml") }

// close ends the agent, and removes the remains of its pods.
func (n *node) close() (err error) {
	if n.agent != nil && n.agent.Process != nil {
		err = n.agent.Process.Signal(unix.SIGTERM)
		_ = n.agent.Wait() // the error says that the signal ended it
		out, failed := exec.Command(n.Binary, "reset", "--yes", "--root-dir", n.Dir, "--config",
			n.config()).CombinedOutput()
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("reset: %w\n%s", failed, out))
		}
	}
	for i := len(n.undo) - 1; i >= 0; i-- {
		n.undo[i]()
	}
	return err
}

// start writes the manifest of a pod.
func (n *node) start(name string) error {
	text, err := yaml.Marshal(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			HostNetwork: true, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "app", Image: fake.Image, ImagePullPolicy: corev1.PullNever,
				Args: []string{"sleep"}}},
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(n.manifest(name), text, 0o600)
}

func (n *node) manifest(name string) string { return filepath.Join(n.Dir, "manifests", name+".yaml") }

// podName is the name that the agent gives to a pod from a manifest.
func podName(name string) string { return name + "-bench" }

// await waits for a call. pod is empty for a call of any pod.
func (n *node) await(ctx context.Context, method, pod string) (time.Time, error) {
	limit := time.After(patience)
	for {
		select {
		case c := <-n.calls:
			if c.method == method && (pod == "" || c.pod == pod) {
				return c.at, nil
			}
		case <-limit:
			return time.Time{}, fmt.Errorf("no %s of the agent within %s", method, patience)
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// grow starts pods until there are size.
func (n *node) grow(ctx context.Context, size int) error {
	begin := n.pods
	for ; n.pods < size; n.pods++ {
		if err := n.start(fmt.Sprint("base-", n.pods)); err != nil {
			return err
		}
	}
	for range size - begin {
		if _, err := n.await(ctx, "StartContainer", ""); err != nil {
			return err
		}
	}
	return nil
}

// measure measures the agent with its present pods. It ends the containers of pods from first on. These have not ended
// before, so their restart has no backoff.
func (n *node) measure(ctx context.Context, first int) (Row, error) {
	row := Row{Pods: n.pods}
	if err := retry.Sleep(ctx, settle); err != nil {
		return row, err
	}
	used, err := n.cost(func() error { return retry.Sleep(ctx, n.Idle) })
	if err != nil {
		return row, err
	}
	row.Idle = used.Seconds() / n.Idle.Seconds() * 100
	if row.RSS, row.Private, err = proc.Memory(n.agent.Process.Pid); err != nil {
		return row, err
	}
	var times []time.Duration
	used, err = n.cost(func() error {
		for i := range n.Changes {
			took, err := n.startOne(ctx, fmt.Sprintf("start-%d-%d", n.pods, i))
			if err != nil {
				return err
			}
			times = append(times, took)
		}
		return retry.Sleep(ctx, quiet)
	})
	if err != nil {
		return row, err
	}
	row.Start, times = changeOf(times, used), nil
	if err := n.removeStarted(ctx); err != nil {
		return row, err
	}
	used, err = n.cost(func() error {
		for i := range n.Changes {
			took, err := n.exitOne(ctx, podName(fmt.Sprint("base-", first+i)))
			if err != nil {
				return err
			}
			times = append(times, took)
		}
		return retry.Sleep(ctx, quiet)
	})
	if err == nil {
		row.Exit = changeOf(times, used)
	}
	return row, err
}

// cost returns the CPU time that the agent uses while meanwhile runs.
func (n *node) cost(meanwhile func() error) (time.Duration, error) {
	before, err := proc.CPU(n.agent.Process.Pid)
	if err != nil {
		return 0, err
	}
	if err := meanwhile(); err != nil {
		return 0, err
	}
	after, err := proc.CPU(n.agent.Process.Pid)
	return after.Own - before.Own, err
}

// startOne starts a pod, and returns the time until the agent starts its container.
func (n *node) startOne(ctx context.Context, name string) (time.Duration, error) {
	begin := time.Now()
	if err := n.start(name); err != nil {
		return 0, err
	}
	if _, err := n.await(ctx, "CreateContainer", podName(name)); err != nil {
		return 0, err
	}
	at, err := n.await(ctx, "StartContainer", "")
	return at.Sub(begin), err
}

// exitOne ends the container of a pod, and returns the time until the agent creates the next one.
func (n *node) exitOne(ctx context.Context, pod string) (time.Duration, error) {
	list, err := n.client.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": pod}},
	})
	if err != nil {
		return 0, err
	}
	if len(list.Containers) != 1 {
		return 0, fmt.Errorf("pod %s has %d containers, want one", pod, len(list.Containers))
	}
	begin := time.Now()
	n.runtime.Exit(list.Containers[0].Id, 1, "")
	at, err := n.await(ctx, "CreateContainer", pod)
	return at.Sub(begin), err
}

// removeStarted removes the pods that startOne has started, and waits until the runtime has none of them.
func (n *node) removeStarted(ctx context.Context) error {
	files, err := filepath.Glob(n.manifest("start-*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		list, err := n.client.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(list.Items) == n.pods {
			return err
		}
		const again = 20 * time.Millisecond
		if err := retry.Sleep(ctx, again); err != nil {
			return err
		}
	}
}
