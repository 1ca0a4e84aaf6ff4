package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/test/containerd"
)

const pointsPod = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: init, image: example.com/workload:1, args: ["true"]}
  - name: side
    image: example.com/workload:1
    args: [sleep]
    restartPolicy: Always
    lifecycle: {preStop: {exec: {command: [/workload, "true"]}}}
  containers:
  - name: app
    image: example.com/workload:1
    args: [sleep]
    lifecycle:
      postStart: {exec: {command: [/workload, "true"]}}
      preStop: {exec: {command: [/workload, "true"]}}
`

// TestKilledAtEveryCall runs a pod from start to end, again and again. Each time it kills the agent at another call
// that changes something in the runtime. It does so twice for each call: before the runtime got the call, and before
// the agent got the answer. The next agent continues, and the pod reaches the same states: nothing runs twice, nothing
// is lost, and no container restarts that did not end.
func TestKilledAtEveryCall(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs for one to two minutes")
	}
	p := newPoints(t)
	points := 0
	for _, answered := range []bool{false, true} {
		for call := 1; ; call++ {
			name, ok := p.live(call, answered)
			if !ok {
				break
			}
			points++
			t.Logf("agent killed at call %d, %s (answered: %v)", call, name, answered)
		}
	}
	if points < 30 {
		t.Errorf("the agent was killed at %d calls, want at least 30", points)
	}
}

// points is an agent on an external runtime, with a proxy between them.
type points struct {
	t       *testing.T
	bin     string
	root    string
	proxy   *proxy
	runtime runtimeapi.RuntimeServiceClient // past the proxy
	agent   *exec.Cmd
	lives   int
}

func newPoints(t *testing.T) *points {
	t.Helper()
	bin, err := filepath.Abs("../bin/berth")
	check(t, err)
	archive, err := filepath.Abs("../bin/workload.tar")
	check(t, err)
	parts, err := containerd.Build(t.Context(), t.TempDir(), "../tools", archive)
	check(t, err)
	n := claimed(t)
	dir, err := os.MkdirTemp("", "bp") // short: unix sockets lie below it
	check(t, err)
	daemon, err := containerd.New(context.Background(),
		containerd.Options{Parts: parts, Dir: dir, Bridge: fmt.Sprintf("berth-test%d", n),
			Subnet: fmt.Sprintf("10.204.%d.0/24", n)})
	check(t, err)
	t.Cleanup(func() { check(t, daemon.Close()) })
	root, err := os.MkdirTemp("", "b")
	check(t, err)
	conn, err := grpc.NewClient(daemon.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { check(t, conn.Close()) })
	p := &points{t: t, bin: bin, root: root, proxy: newProxy(conn), runtime: runtimeapi.NewRuntimeServiceClient(conn)}
	socket := filepath.Join(dir, "proxy.sock")
	listener, err := net.Listen("unix", socket)
	check(t, err)
	go func() { _ = p.proxy.server.Serve(listener) }()
	t.Cleanup(p.proxy.server.Stop)
	check(t, os.Mkdir(filepath.Join(root, "manifests"), 0o755))
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %s/logs
cgroupRoot: /berth-test-%d
containerRuntimeEndpoint: unix://%s
evictionHard: {memory.available: 50Mi}
`, root, n, socket)
	check(t, os.WriteFile(p.config(), []byte(config), 0o644))
	t.Cleanup(func() {
		p.kill()
		if out, err := exec.Command(bin, "reset", "--yes", "--root-dir", root, "--config",
			p.config()).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *points) config() string { return filepath.Join(p.root, "config.yaml") }

func (p *points) start() {
	log, err := os.OpenFile(filepath.Join(p.root, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(p.t, err)
	defer log.Close()
	p.agent = exec.Command(p.bin, "agent", "--root-dir", p.root, "--hostname-override", "node1", "--config", p.config())
	p.agent.Stdout, p.agent.Stderr = log, log
	check(p.t, p.agent.Start())
}

func (p *points) kill() {
	if p.agent != nil {
		_ = p.agent.Process.Kill()
		_ = p.agent.Wait() // it was killed
		p.agent = nil
	}
}

// live starts a pod, kills its app so that it restarts, and deletes the pod. The agent is killed at the given call
// and started again. name is that call's name. ok is false if there were fewer calls.
func (p *points) live(call int, answered bool) (name string, ok bool) {
	p.lives++
	life := fmt.Sprintf("life%d", p.lives)
	manifest := filepath.Join(p.root, "manifests", "pod.yaml")
	p.proxy.arm(call, answered)
	if p.agent == nil {
		p.start()
	}
	check(p.t, os.WriteFile(manifest, fmt.Appendf(nil, pointsPod, life), 0o644))
	for _, stage := range []struct {
		do   func()
		want []string
	}{
		{func() {}, []string{"app 0 RUNNING", "init 0 EXITED", "side 0 RUNNING"}},
		{p.endApp, []string{"app 0 EXITED", "app 1 RUNNING", "init 0 EXITED", "side 0 RUNNING"}},
		{func() { check(p.t, os.Remove(manifest)) }, nil},
	} {
		stage.do()
		if frozen := p.reach(life, stage.want); frozen != "" {
			name = frozen
		}
	}
	return name, name != ""
}

// reach waits until the runtime has the wanted containers and the agent reports the same. If the proxy stops a call
// meanwhile, reach kills the agent there, starts another and returns the call's name.
func (p *points) reach(name string, want []string) (frozen string) {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		seen := p.containers()
		if again := slices.ContainsFunc(seen, func(line string) bool {
			return strings.HasSuffix(line, " 2 RUNNING")
		}); again {
			p.t.Fatalf("a container of %s restarted although it had not ended: %q", name, seen)
		}
		if slices.Equal(seen, want) && p.reports(name, want != nil) {
			return frozen
		}
		select {
		case frozen = <-p.proxy.frozen:
			p.kill()
			p.start()
		case <-tick.C:
		case <-deadline:
			log, _ := os.ReadFile(filepath.Join(p.root, "agent.log"))
			p.t.Fatalf("killed at %s: %s has %q, want %q\n%s", frozen, name, seen, want, log[max(0, len(log)-8000):])
		}
	}
}

// containers lists the runtime's containers: name, attempt and state.
func (p *points) containers() (lines []string) {
	all, err := p.runtime.ListContainers(p.t.Context(), &runtimeapi.ListContainersRequest{})
	check(p.t, err)
	for _, c := range all.Containers {
		lines = append(lines,
			fmt.Sprintln(c.Metadata.Name, c.Metadata.Attempt, strings.TrimPrefix(c.State.String(), "CONTAINER_")))
	}
	slices.Sort(lines)
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}

// reports says whether the agent reports the pod as ready or, if it should not exist, reports no pod.
func (p *points) reports(name string, exists bool) bool {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
	defer cancel()
	c := client.New(filepath.Join(p.root, "berth.sock"))
	pods, err := c.Pods(ctx, client.Select{Namespace: "default"})
	if err != nil {
		return false // the agent is starting
	}
	if !exists {
		return len(pods.Items) == 0
	}
	return len(pods.Items) == 1 && pods.Items[0].Name == name+"-node1" && shows(&pods.Items[0], "Ready")
}

// endApp kills the app's process.
func (p *points) endApp() {
	check(p.t, processes{p.runtime}.signal(p.t.Context(), map[string]string{pod.LabelContainerName: "app"},
		unix.SIGKILL))
}

// proxy forwards the calls of a CRI client, and stops at one of the calls that change something.
type proxy struct {
	server *grpc.Server
	behind *grpc.ClientConn
	frozen chan string // the name of the call that it stopped at

	mu       sync.Mutex
	left     int  // calls that change something, up to the one to stop at
	answered bool // stop after the runtime's answer, not before the call
}

func newProxy(behind *grpc.ClientConn) *proxy {
	p := &proxy{behind: behind, frozen: make(chan string, 1)}
	p.server = grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(p.serve))
	return p
}

// arm makes the proxy stop at the nth call, counted from now, that changes something.
func (p *proxy) arm(n int, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.answered = n, answered
}

// stopAt counts a call and says whether it is the one to stop at.
func (p *proxy) stopAt(call string) bool {
	changes := []string{"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer",
		"StopContainer", "RemoveContainer", "ExecSync"}
	if !slices.Contains(changes, call) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left--
	return p.left == 0
}

func (p *proxy) serve(_ any, from grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(from)
	var message []byte
	if err := from.RecvMsg(&message); err != nil {
		return err
	}
	stop := p.stopAt(path.Base(method))
	freeze := func() error {
		p.frozen <- path.Base(method)
		<-from.Context().Done() // until the agent is killed
		return status.Error(codes.Canceled, "killed")
	}
	if stop && !p.answered {
		return freeze()
	}
	desc := &grpc.StreamDesc{ServerStreams: true}
	to, err := p.behind.NewStream(from.Context(), desc, method, grpc.ForceCodec(raw{}))
	if err != nil {
		return err
	}
	if err := to.SendMsg(&message); err != nil {
		return err
	}
	if err := to.CloseSend(); err != nil {
		return err
	}
	for {
		var answer []byte
		err := to.RecvMsg(&answer)
		if stop {
			return freeze()
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := from.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// raw is a gRPC codec that passes messages on as bytes.
type raw struct{}

func (raw) Name() string                       { return "proto" }
func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = slices.Clone(data); return nil }
