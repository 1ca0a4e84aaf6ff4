package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/client"
)

// dice returns random numbers that a seed repeats. It chooses the seed if that is 0, and logs how to repeat the run.
func dice(t *testing.T, name string, seed uint64) (*rand.Rand, uint64) {
	t.Helper()
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	}
	t.Logf("repeat with %s %d", name, seed)
	return rand.New(rand.NewPCG(seed, 0)), seed //nolint:gosec // it need not be secret
}

// subject is the agent, with the embedded runtime, that a campaign loads and measures. It has a root directory, a
// cgroup and a network of its own.
type subject struct {
	t       *testing.T
	bin     string
	root    string
	place   int            // the number from claim
	client  *client.Client // of the local API
	runtime runtimeapi.RuntimeServiceClient
	agent   *exec.Cmd
}

// newSubject starts an agent whose configuration has these lines too, and loads the image. When the test ends, it
// removes everything from the machine.
func newSubject(t *testing.T, lines string) *subject {
	t.Helper()
	bin, err := filepath.Abs("../bin/berth")
	check(t, err)
	archive, err := filepath.Abs("../bin/workload.tar")
	check(t, err)
	n := claimed(t)
	root, err := os.MkdirTemp("", "b")
	check(t, err)
	check(t, os.Chmod(root, 0o711)) //nolint:gosec // pods that run as other users pass through it
	conn, err := grpc.NewClient("unix://"+filepath.Join(root, "cri.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { check(t, conn.Close()) })
	s := &subject{t: t, bin: bin, root: root, place: n, client: client.New(filepath.Join(root, "berth.sock")),
		runtime: runtimeapi.NewRuntimeServiceClient(conn)}
	check(t, os.Mkdir(filepath.Join(root, "manifests"), 0o755))
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %[1]s/logs
podCIDR: "10.203.%[2]d.0/24,fd00:b:%[2]d::/64"
cgroupRoot: /berth-test-%[2]d
evictionHard: {memory.available: 50Mi}
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
maxPods: 250
%[3]s`, root, n, lines)
	check(t, os.WriteFile(s.config(), []byte(config), 0o644))
	t.Cleanup(s.reset)
	s.start()
	if out, err := s.command("image", "load", archive).CombinedOutput(); err != nil {
		t.Fatalf("load image: %v\n%s", err, out)
	}
	return s
}

func (s *subject) config() string { return filepath.Join(s.root, "config.yaml") }

// cgroup is the cgroup of all the agent's pods, in each hierarchy.
func (s *subject) cgroup() string { return fmt.Sprintf("/berth-test-%d", s.place) }

// command is a command of berth for this agent.
func (s *subject) command(args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), s.bin, append([]string{"--root-dir", s.root}, args...)...)
}

// start starts the agent and waits until its API answers.
func (s *subject) start() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.root, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(s.t, err)
	defer log.Close()
	s.agent = s.command("agent", "--hostname-override", "node1", "--config", s.config(),
		"--cri-listen", "unix://"+filepath.Join(s.root, "cri.sock"))
	s.agent.Stdout, s.agent.Stderr = log, log
	check(s.t, s.agent.Start())
	s.wait("the agent to answer", func(ctx context.Context) bool { return s.client.Healthy(ctx) == nil })
}

// reset ends the agent and removes its root, with everything that its pods have on the machine.
func (s *subject) reset() {
	_ = s.agent.Process.Signal(unix.SIGTERM) // it may have ended
	ended := time.AfterFunc(patience, func() { _ = s.agent.Process.Kill() })
	_ = s.agent.Wait() // the signal may have ended it
	if !ended.Stop() {
		s.t.Errorf("the agent had not ended %v after SIGTERM", patience)
	}
	if s.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(s.root, "agent.log"))
		s.t.Logf("the end of the agent's log:\n%s", log[max(0, len(log)-8000):])
	}
	out, err := s.command("reset", "--yes", "--config", s.config()).CombinedOutput()
	if err != nil {
		s.t.Errorf("reset: %v\n%s", err, out)
	}
}

// wait waits until a condition holds, and fails the test after patience.
func (s *subject) wait(what string, holds func(context.Context) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience) // a pod may have hundreds of containers
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			s.t.Fatalf("waited %v for %s", 3*patience, what)
		case <-tick.C:
		}
	}
}

// manifest writes a manifest, or removes it if text is empty.
func (s *subject) manifest(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.root, "manifests", name+".yaml")
	if text == "" {
		check(s.t, os.Remove(path))
		return
	}
	next := filepath.Join(s.root, "manifests", "."+name)
	check(s.t, os.WriteFile(next, []byte(text), 0o644))
	check(s.t, os.Rename(next, path))
}

// await watches the pods of a namespace until one satisfies the condition.
func (s *subject) await(sel client.Select, what string, holds func(*corev1.Pod) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	last := "none seen"
	for change, err := range s.client.WatchPods(ctx, sel) {
		check(s.t, err)
		if change.Object == nil || change.Deleted {
			continue
		}
		if holds(change.Object) {
			return
		}
		last = describe(change.Object)
	}
	s.t.Fatalf("waited %v for %s: %.2000s", patience, what, last)
}

// gone waits until no pod of a namespace is left.
func (s *subject) gone(namespace string) {
	s.t.Helper()
	s.wait("the pods of "+namespace+" to end", func(ctx context.Context) bool {
		pods, err := s.client.Pods(ctx, client.Select{Namespace: namespace})
		return err == nil && len(pods.Items) == 0
	})
}

// resident returns the agent's resident memory in MB, now and at its peak since the last forget.
func (s *subject) resident() (now, peak float64) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.agent.Process.Pid))
	check(s.t, err)
	for line := range strings.Lines(string(text)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			now = kb * 1024 / 1e6
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kb); err == nil {
			peak = kb * 1024 / 1e6
		}
	}
	return now, peak
}

// forget makes the kernel measure the peak of the agent's memory from now (proc_pid_clear_refs(5)).
func (s *subject) forget() {
	s.t.Helper()
	check(s.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.agent.Process.Pid), []byte("5"), 0o200))
}
