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
	"github.com/berth-run/berth/test/containerd"
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

// subject is the agent that a campaign loads, disturbs and measures. It has a root directory, a cgroup and a network of
// its own.
type subject struct {
	t        *testing.T
	bin      string
	root     string
	place    int                // the number from claim
	client   *client.Client     // of the local API
	external *containerd.Daemon // nil with the embedded runtime
	runtime  runtimeapi.RuntimeServiceClient
	flags    []string  // more flags of the agent
	agent    *exec.Cmd // nil unless it runs
}

// newSubject starts an agent on the runtime "embedded" or "containerd", with these lines in its configuration and these
// flags, and loads the image. When the test ends, it removes everything from the machine.
func newSubject(t *testing.T, runtime, lines string, flags ...string) *subject {
	t.Helper()
	h := newHarness(t, runtime)
	root, err := os.MkdirTemp("", "b")
	check(t, err)
	check(t, os.Chmod(root, 0o711)) //nolint:gosec // pods that run as other users pass through it
	s := &subject{t: t, bin: h.bin, root: root, place: claimed(t), flags: flags,
		client: client.New(filepath.Join(root, "berth.sock"))}
	endpoint, socket := "embedded", "unix://"+filepath.Join(root, "cri.sock")
	if runtime == "containerd" {
		var end func() error
		s.external, end, err = h.external(s.place)
		check(t, err)
		t.Cleanup(func() { check(t, end()) })
		endpoint, socket = s.external.Endpoint(), s.external.Endpoint()
	} else {
		s.flags = append(s.flags, "--cri-listen", socket)
	}
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { check(t, conn.Close()) })
	s.runtime = runtimeapi.NewRuntimeServiceClient(conn)
	check(t, os.Mkdir(filepath.Join(root, "manifests"), 0o755))
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %[1]s/logs
podCIDR: "10.203.%[2]d.0/24,fd00:b:%[2]d::/64"
cgroupRoot: /berth-test-%[2]d
containerRuntimeEndpoint: %[3]q
evictionHard: {memory.available: 50Mi}
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
maxPods: 250
imageGCHighThresholdPercent: 100
%[4]s`, root, s.place, endpoint, lines)
	check(t, os.WriteFile(s.config(), []byte(config), 0o644))
	t.Cleanup(s.reset)
	s.launch()
	s.answers()
	if s.external == nil { // the external one has the image
		if out, err := s.command("image", "load", h.archive).CombinedOutput(); err != nil {
			t.Fatalf("load image: %v\n%s", err, out)
		}
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

// launch starts the agent and does not wait for it.
func (s *subject) launch() {
	s.t.Helper()
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(s.t, err)
	defer log.Close()
	flags := append([]string{"agent", "--hostname-override", nodeName, "--config", s.config()}, s.flags...)
	s.agent = s.command(flags...)
	s.agent.Stdout, s.agent.Stderr = log, log
	check(s.t, s.agent.Start())
}

// answers waits until the agent's API answers.
func (s *subject) answers() {
	s.t.Helper()
	s.wait("the agent to answer", patience, s.client.Healthy)
}

// kill ends the agent with SIGKILL.
func (s *subject) kill() {
	_ = s.agent.Process.Kill()
	_ = s.agent.Wait() // it was killed
	s.agent = nil
}

func (s *subject) log() string { return filepath.Join(s.root, "agent.log") }

// reset ends the agent and removes its root, with everything that its pods have on the machine. If the test has failed,
// it shows the pods and their events, and keeps the agent's log.
func (s *subject) reset() {
	if s.t.Failed() {
		for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"events", "-A"}} {
			out, err := s.command(args...).CombinedOutput()
			s.t.Logf("%s: %v\n%s", args, err, out[max(0, len(out)-6000):])
		}
	}
	if s.agent != nil {
		_ = s.agent.Process.Signal(unix.SIGTERM) // it may have ended
		ended := time.AfterFunc(patience, func() { _ = s.agent.Process.Kill() })
		_ = s.agent.Wait() // the signal may have ended it
		if !ended.Stop() {
			s.t.Errorf("the agent had not ended %v after SIGTERM", patience)
		}
	}
	for _, process := range kill(s.bin, s.root) {
		s.t.Errorf("a process is left: %s", process)
	}
	if s.t.Failed() {
		log, _ := os.ReadFile(s.log())
		s.t.Logf("the end of the agent's log:\n%s", log[max(0, len(log)-12000):])
		kept := filepath.Join("../bin/failed", strings.ReplaceAll(s.t.Name(), "/", "-")+".log")
		check(s.t, os.MkdirAll(filepath.Dir(kept), 0o755))
		check(s.t, os.WriteFile(kept, log, 0o644))
	}
	out, err := s.command("reset", "--yes", "--config", s.config()).CombinedOutput()
	if err != nil {
		s.t.Errorf("reset: %v\n%s", err, out)
	}
}

// wait repeats f until it returns no error, and fails the test with its last error after this time.
func (s *subject) wait(what string, most time.Duration, f func(context.Context) error) {
	s.t.Helper()
	var last error
	if !repeat(20*time.Millisecond, most, func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second) // a stopped agent keeps a request waiting
		defer cancel()
		last = f(ctx)
		return last == nil
	}) {
		s.t.Fatalf("waited %v for %s: %v", most, what, last)
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
	// A pod may have hundreds of containers.
	s.wait("the pods of "+namespace+" to end", 3*patience, func(ctx context.Context) error {
		pods, err := s.client.Pods(ctx, client.Select{Namespace: namespace})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods, the first: %.2000s", len(pods.Items), describe(&pods.Items[0]))
		}
		return err
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
