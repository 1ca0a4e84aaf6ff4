package test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/pausetest"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/userns"
	"github.com/berth-run/berth/test/containerd"
	"github.com/berth-run/berth/test/criproxy"
	"github.com/berth-run/berth/test/deviceplugin"
	"github.com/berth-run/berth/test/dradriver"
)

// patience bounds every wait of a script. It is long because machines are busy; a successful wait ends as soon as
// its condition holds.
var patience = 90 * time.Second

func TestMain(m *testing.M) {
	flag.DurationVar(&patience, "patience", patience, "how long a script waits for a condition before it fails")
	flag.Parse()
	os.Exit(m.Run())
}

// TestScript runs the scripts of test/script on each runtime. Each script has its own root directory and the commands
// of harness.commands.
func TestScript(t *testing.T) {
	t.Parallel() // with TestChaos
	bin, err := filepath.Abs("../bin/berth")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := filepath.Abs("../bin/workload.tar")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{bin, archive} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: run make build image", err)
		}
	}
	for _, runtime := range []string{"embedded", "containerd"} {
		t.Run(runtime, func(t *testing.T) {
			h := &harness{bin: bin, archive: archive, runtime: runtime}
			if runtime == "containerd" {
				h.parts, err = parts(t, archive)
				check(t, err)
			}
			testscript.Run(t, testscript.Params{
				Dir: "script", Setup: h.setup, RequireExplicitExec: true, RequireUniqueNames: true,
				Condition: h.condition, Cmds: h.commands(),
			})
		})
	}
}

// condition says whether a condition that a script has in brackets holds; harness.commands lists them.
func (h *harness) condition(c string) (bool, error) {
	switch c {
	case "userns":
		return userns.Check(os.TempDir(), os.TempDir()) == nil, nil
	case "apparmor":
		enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
		return err == nil && strings.HasPrefix(string(enabled), "Y"), nil
	case "vm":
		return inVM(), nil
	case "systemd":
		return onSystemd(), nil
	case "kmsg":
		return unix.Access("/dev/kmsg", unix.R_OK) == nil, nil
	case "old-docker":
		return h.runtime == onDocker && !dockertest.Current(), nil
	case "cgroup2":
		return cgroups.IsCgroup2UnifiedMode(), nil
	}
	return c == h.runtime, nil
}

// inVM says whether this machine is an emulated one that test/vm started.
func inVM() bool { return os.Getenv("BERTH_TEST_VM") != "" }

// onSystemd says whether this machine is the emulated one whose init is systemd.
func onSystemd() bool { return inVM() && exists("/run/systemd/system") }

// parts makes the parts of the external runtime. The emulated machine has the plugins, and no Go to build them.
func parts(t *testing.T, archive string) (containerd.Parts, error) {
	if inVM() {
		plugins, err := filepath.Abs("../bin/vm/cni")
		check(t, err)
		return containerd.Built(t.TempDir(), plugins, archive)
	}
	return containerd.Build(t.Context(), t.TempDir(), "../tools", archive)
}

// harness holds the values that all scripts of one runtime share: the paths of berth and of the workload's archive, and
// the runtime's name.
type harness struct {
	bin, archive, runtime string
	parts                 containerd.Parts // for the external runtime
}

// daemon is the agent process of one script, and its external runtime.
type daemon struct {
	cmd     *exec.Cmd
	runtime *containerd.Daemon // nil unless containerd is the runtime
	docker  *dockertest.Daemon // nil unless Docker is the runtime
	proxy   *criproxy.Proxy    // nil until faulty-runtime start
	// manifests serves the static pod URL.
	manifests *manifests
	registry  *registry
	images    *imageRegistry                  // nil until serve-registry
	collector *collector                      // nil until collect-spans
	systemd   *systemd                        // nil until service-manager
	faulty    string                          // the binary that agent start runs; "" for the product's
	under     []string                        // the program that starts the agent, see agent-under
	ownMounts bool                            // see own-mounts
	hanging   map[string]func() error         // the releases of hang, by directory
	place     int                             // the number from claim
	root      string                          // the root directory
	plugins   map[string]*deviceplugin.Plugin // by resource
	dra       *dradriver.Driver               // nil until dra-driver start
}

type daemonKey struct{}

// portBase and nodePortBase are below the ports that the kernel gives out by itself, also to the other end of a
// connection. Each place has two host ports above portBase, and one above nodePortBase for the node's HTTPS server.
const (
	portBase     = 18000
	nodePortBase = 19000
)

// setup makes the root directory, the configuration and the environment of a script. At the end it removes
// everything of the script from the machine, whatever the script did.
func (h *harness) setup(env *testscript.Env) error {
	root, err := os.MkdirTemp("", "b") // short: unix sockets lie below it
	if err != nil {
		return err
	}
	if err := os.Chmod(root, 0o711); err != nil { // pods that run as other users need to pass through it
		return err
	}
	n, release, err := claim()
	if err != nil {
		return err
	}
	env.Defer(release)
	d := &daemon{manifests: newManifests(), place: n, root: root, plugins: map[string]*deviceplugin.Plugin{},
		hanging: map[string]func() error{}}
	env.Defer(d.manifests.server.Close)
	if d.registry, err = newRegistry(); err != nil {
		return err
	}
	env.Defer(func() { _ = d.registry.listener.Close() })
	endpoint, err := h.begin(env, d)
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %[1]s/logs
podCIDR: "10.203.%[2]d.0/24,fd00:b:%[2]d::/64"
cgroupRoot: /berth-test-%[2]d
containerRuntimeEndpoint: %[3]q
evictionHard: {memory.available: 50Mi}
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
staticPodURL: %[4]s
httpCheckFrequency: 200ms
runtimeRequestTimeout: %[5]v
`, root, n, endpoint, d.manifests.server.URL+"/pods", patience/3)
	if err := os.WriteFile(filepath.Join(root, "config.yaml"), []byte(config), 0o644); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(root, "manifests"), 0o755); err != nil {
		return err
	}
	env.Values[daemonKey{}] = d
	env.Defer(func() {
		_ = d.end(syscall.SIGKILL)       // the error says that the signal ended it
		for len(kill(h.bin, root)) > 0 { // commands that the script left in the background
			time.Sleep(10 * time.Millisecond)
		}
		reset := func() ([]byte, error) {
			return exec.Command(h.bin, "reset", "--yes", "--root-dir", d.root, "--config",
				filepath.Join(d.root, "config.yaml")).CombinedOutput()
		}
		out, err := reset()
		if err != nil && inVM() { // on emulated CPUs the runtime may start more slowly than reset waits
			out, err = reset()
		}
		// A kubelet mounts its root directory onto itself, and disk-root mounts a disk. Reset keeps a mount that is the
		// root directory.
		unmount := func(flags int) error {
			err := unix.Unmount(d.root, flags)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
				return nil
			}
			return err
		}
		if err != nil {
			err = errors.Join(err, destroy(d.traces(d.root)), unmount(unix.MNT_DETACH))
			env.T().Log(string(out), err)
			env.T().FailNow()
		}
		if err := unmount(0); err != nil {
			env.T().Log(err)
			env.T().FailNow()
		}
		if err := os.RemoveAll(root); err != nil { // beside a root directory that lies deeper
			env.T().Log(err)
			env.T().FailNow()
		}
	})
	env.Setenv("CGROUP", fmt.Sprintf("/berth-test-%d", n))
	env.Setenv("PLACE", strconv.Itoa(n))
	env.Setenv("PORT", strconv.Itoa(portBase+2*n))
	env.Setenv("PORT2", strconv.Itoa(portBase+2*n+1))
	env.Setenv("ROOT", root)
	env.Setenv("ENDPOINT", endpoint)
	env.Setenv("REGISTRY", d.registry.listener.Addr().String())
	env.Setenv("CONFIG", filepath.Join(root, "config.yaml"))
	env.Setenv("IMAGE", "example.com/workload:1")
	env.Setenv("ARCHIVE", h.archive)
	env.Setenv("RUNTIME", h.runtime)
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("PATH", filepath.Dir(h.bin)+":"+env.Getenv("PATH"))
	return nil
}

// begin starts the runtime of a script and returns the agent's containerRuntimeEndpoint for it.
func (h *harness) begin(env *testscript.Env, d *daemon) (endpoint string, err error) {
	var end func() error
	switch h.runtime {
	case "embedded":
		return h.runtime, nil
	case onDocker:
		if d.docker, end, err = h.dockerd(); err == nil {
			endpoint = "docker://" + d.docker.Endpoint()
		}
	default:
		if d.runtime, end, err = h.external(d.place); err == nil {
			endpoint = d.runtime.Endpoint()
		}
	}
	if err != nil {
		return "", err
	}
	env.Defer(func() {
		if err := end(); err != nil {
			env.T().Log(err)
			env.T().FailNow()
		}
	})
	return endpoint, nil
}

func rootOf(ts *testscript.TestScript) string { return ts.Getenv("ROOT") }

func clientOf(ts *testscript.TestScript) *client.Client {
	return client.New(filepath.Join(rootOf(ts), "berth.sock"))
}

func (h *harness) agent(ts *testscript.TestScript, args []string) {
	d := ts.Value(daemonKey{}).(*daemon)
	switch args[0] {
	case "start":
		h.launch(ts, d, args[1:]...)
		h.ready(ts)
	case "stop":
		if err := d.end(syscall.SIGTERM); err != nil {
			fail(ts, "the agent ended with %v", err)
		}
	case "kill":
		_ = d.end(syscall.SIGKILL)
	case "leave":
		ts.Check(d.cmd.Process.Signal(syscall.SIGTERM))
		left := d.cmd
		d.cmd = nil
		ts.Defer(func() { _ = left.Wait() })
	case "crash":
		h.launch(ts, d, args[1:]...)
		d.crashed(ts)
	case "freeze":
		frozen := d.cmd.Process
		ts.Defer(func() { _ = pausetest.Resume(frozen) }) // so that the agent can end
		ts.Check(pausetest.Pause(frozen))
	case "thaw":
		ts.Check(pausetest.Resume(d.cmd.Process))
	default:
		ts.Fatalf("agent %s: unknown", args[0])
	}
}

// ready waits until the agent's API answers, and loads the image of the workload if it is not there.
func (h *harness) ready(ts *testscript.TestScript) {
	h.healthy(ts)
	root := rootOf(ts)
	if _, err := os.Stat(filepath.Join(root, "loaded")); err != nil {
		ts.Check(ts.Exec(h.bin, "--root-dir", root, "image", "load", h.archive))
		ts.Check(os.WriteFile(filepath.Join(root, "loaded"), nil, 0o644))
	}
}

// launch starts the agent and does not wait for it.
func (h *harness) launch(ts *testscript.TestScript, d *daemon, more ...string) {
	root := rootOf(ts)
	flags := []string{"agent", "--root-dir", root, "--hostname-override", "node1", "--config",
		filepath.Join(root, "config.yaml")}
	h.execute(ts, d, slices.Concat(d.under, []string{cmp.Or(d.faulty, h.bin)}, flags, h.listens(ts), more))
}

// listens returns the flags that let a script ask the embedded runtime.
func (h *harness) listens(ts *testscript.TestScript) []string {
	if h.runtime == "containerd" {
		return nil
	}
	return []string{"--cri-listen", "unix://" + filepath.Join(rootOf(ts), "cri.sock")}
}

// execute starts an agent with a command line and does not wait for it.
func (h *harness) execute(ts *testscript.TestScript, d *daemon, line []string) {
	log, err := os.OpenFile(ts.MkAbs("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	ts.Check(err)
	defer log.Close()
	d.cmd = exec.Command(line[0], line[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if d.systemd != nil {
		d.cmd.Env = d.systemd.env
	}
	if d.faulty != "" {
		d.cmd.Env = append(d.cmd.Environ(), "BERTH_FAULTS="+ts.MkAbs("faults"))
	}
	if e := ts.Getenv("CONTAINER_RUNTIME_ENDPOINT"); e != "" {
		d.cmd.Env = append(d.cmd.Environ(), "CONTAINER_RUNTIME_ENDPOINT="+e)
	}
	begin := d.cmd.Start
	if d.ownMounts {
		begin = func() error { return inOwnMounts(d.cmd.Start) }
	}
	ts.Check(begin())
}

// healthy waits until the agent's API answers.
func (h *harness) healthy(ts *testscript.TestScript) {
	eventually(ts, func() (bool, any) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := clientOf(ts).Healthy(ctx)
		return err == nil, err
	})
}

// end sends the agent a signal and waits until it has ended. The error says how it ended.
func (d *daemon) end(s syscall.Signal) error {
	if d.cmd == nil || d.cmd.Process == nil { // it did not start
		return nil
	}
	if err := d.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := d.cmd.Wait()
	d.cmd = nil
	return err
}

// crashed waits until a panic has ended the agent.
func (d *daemon) crashed(ts *testscript.TestScript) {
	late := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
	err := d.cmd.Wait()
	late.Stop()
	d.cmd = nil
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != panicStatus {
		fail(ts, "the agent ended with %v, want the exit status %d of a panic", err, panicStatus)
	}
}

// panicStatus is the exit status of a Go program that a panic has ended.
const panicStatus = 2

func key(name string) types.NamespacedName {
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		namespace, name = "default", namespace
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func (h *harness) await(ts *testscript.TestScript, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	k := key(args[0])
	last := "never seen"
	for change, err := range clientOf(ts).WatchPods(ctx, client.Select{Namespace: k.Namespace, Name: k.Name}) {
		if err != nil {
			last += ": " + err.Error()
			break
		}
		switch {
		case change.Deleted, change.Synced:
			if args[1] == "Gone" && (change.Deleted || last == "never seen") {
				return
			}
		case shows(change.Object, args[1]):
			return
		default:
			last = describe(change.Object)
		}
	}
	fail(ts, "%s is not %s: %s", args[0], args[1], last)
}

// reportTime is how long a part of the report of fail may take.
const reportTime = 5 * time.Second

// fail ends the script, after it has logged the ends of the logs of the agent and of the containers, and the agent's
// warnings. A log of a container may be on a file system that does not answer.
func fail(ts *testscript.TestScript, format string, args ...any) {
	found := make(chan []string, 1)
	go func() {
		logs, _ := filepath.Glob(filepath.Join(rootOf(ts), "logs/*/*/*.log"))
		for i, path := range logs {
			logs[i] = logEnd(path)
		}
		found <- logs
	}()
	select {
	case logs := <-found:
		ts.Logf("%s", strings.Join(logs, "\n"))
	case <-time.After(reportTime):
		ts.Logf("the logs of the containers cannot be read within %v", reportTime)
	}
	ts.Logf("%s", logEnd(ts.MkAbs("agent.log")))
	ts.Logf("%s", warnings(ts))
	ts.Fatalf(format, args...)
}

// warnings returns the agent's events of type Warning, a line each.
func warnings(ts *testscript.TestScript) string {
	ctx, cancel := context.WithTimeout(context.Background(), reportTime)
	defer cancel()
	list, err := clientOf(ts).Events(ctx, client.Select{Fields: "type=" + corev1.EventTypeWarning})
	if err != nil {
		return fmt.Sprintf("the events cannot be listed: %v", err)
	}
	lines := []string{"warnings:"}
	for _, e := range list.Items {
		lines = append(lines,
			fmt.Sprintf("%s/%s %s: %s", e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return strings.Join(lines, "\n")
}

// logEnd returns the path and the last bytes of a log.
func logEnd(path string) string {
	text, _ := os.ReadFile(path)
	return fmt.Sprintf("%s:\n%s", path, text[max(0, len(text)-8000):])
}

// shows says whether a pod's status matches a condition of the command await, Gone aside.
func shows(p *corev1.Pod, what string) bool {
	if string(p.Status.Phase) == what || p.Status.Reason == what {
		return true
	}
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady && what == "NotReady":
			return c.Status != corev1.ConditionTrue
		case string(c.Type) == what:
			return c.Status == corev1.ConditionTrue
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		if w := c.State.Waiting; w != nil && (w.Reason == what || strings.HasPrefix(w.Message, what)) {
			return true
		}
		if e := c.State.Terminated; e != nil && e.Reason == what {
			return true
		}
		if n, ok := strings.CutPrefix(what, "restarts="); ok && n == strconv.Itoa(int(c.RestartCount)) {
			return true
		}
		if least, ok := strings.CutPrefix(what, "restarts>="); ok {
			if n, err := strconv.Atoi(least); err == nil && int(c.RestartCount) >= n {
				return true
			}
		}
	}
	return false
}

func describe(p *corev1.Pod) string {
	text := fmt.Sprintf("phase %s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		text += fmt.Sprintf("; %s %+v", c.Name, c.State)
	}
	return text
}

// containers writes the containers that the runtime itself lists.
func (h *harness) containers(ts *testscript.TestScript, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(h.list(ts), "")), 0o644))
}

// list returns a line for each container of the script's runtime.
func (h *harness) list(ts *testscript.TestScript) []string {
	runtime, done := h.dial(ts)
	defer done()
	all, err := runtime.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{})
	ts.Check(err)
	slices.SortFunc(all.Containers, func(a, b *runtimeapi.Container) int { return cmp.Compare(a.Id, b.Id) })
	lines := make([]string, len(all.Containers))
	for i, c := range all.Containers {
		lines[i] = fmt.Sprintln(c.Id[:12], c.Labels[pod.LabelPodName], c.Metadata.Name, c.Metadata.Attempt, c.State)
	}
	return lines
}

// dial connects to the script's runtime.
func (h *harness) dial(ts *testscript.TestScript) (client runtimeapi.RuntimeServiceClient, done func()) {
	socket := filepath.Join(rootOf(ts), "cri.sock")
	if d := ts.Value(daemonKey{}).(*daemon).runtime; d != nil {
		socket = strings.TrimPrefix(d.Endpoint(), "unix://")
	}
	conn, err := grpc.NewClient("passthrough:///runtime", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return unixsocket.Dial(ctx, socket)
		}))
	ts.Check(err)
	return runtimeapi.NewRuntimeServiceClient(conn), func() { ts.Check(conn.Close()) }
}

func (h *harness) manifest(ts *testscript.TestScript, args []string) {
	text := os.Expand(ts.ReadFile(args[0]), func(name string) string {
		if slices.Contains([]string{"ROOT", "IMAGE", "WORK", "REGISTRY", "PORT"}, name) {
			return ts.Getenv(name)
		}
		return "$" + name
	})
	dir := filepath.Join(rootOf(ts), "manifests")
	tmp := filepath.Join(dir, ".new")
	ts.Check(os.WriteFile(tmp, []byte(text), 0o644))
	ts.Check(os.Rename(tmp, filepath.Join(dir, filepath.Base(args[0]))))
}

// external starts the machine's own containerd for one test, whose place is n, and returns a function that ends it.
// Agents cannot share a runtime, because each ends the pods that it does not know.
func (h *harness) external(n int) (d *containerd.Daemon, end func() error, err error) {
	dir, err := os.MkdirTemp("", "bc")
	if err != nil {
		return nil, nil, err
	}
	d, err = containerd.New(context.Background(), containerd.Options{
		Parts: h.parts, Dir: dir, Bridge: fmt.Sprintf("berth-test%d", n), Subnet: fmt.Sprintf("10.204.%d.0/24", n),
		Systemd: onSystemd(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("start containerd: %w (make setup installs it)", err)
	}
	return d, func() error {
		// A containerd that is killed while it makes a sandbox forgets its network namespace, and its shim.
		err := errors.Join(d.Stop(unix.SIGTERM), unmountAll([]string{dir}), d.Close())
		killAll(func(_, line string) bool { return strings.Contains(line, filepath.Join(dir, "c.sock")) })
		return err
	}, nil
}

// runtimeCommand stops, starts and freezes the external runtime, and changes its pod network.
func (h *harness) runtimeCommand(ts *testscript.TestScript, args []string) {
	if docker := ts.Value(daemonKey{}).(*daemon).docker; docker != nil {
		dockerCommand(ts, docker, args[0])
		return
	}
	d := ts.Value(daemonKey{}).(*daemon).runtime
	if d == nil {
		ts.Fatalf("runtime %s: the embedded runtime is part of the agent", args[0])
	}
	switch args[0] {
	case "kill":
		ts.Check(d.Stop(unix.SIGKILL))
	case "start":
		ts.Check(d.Start(context.Background()))
	case "unplug":
		ts.Check(d.Network(false))
	case "plug":
		ts.Check(d.Network(true))
	case "freeze":
		ts.Defer(func() { _ = pausetest.Resume(d.Process()) }) // the end of the script needs the runtime
		ts.Check(pausetest.Pause(d.Process()))
	case "thaw":
		ts.Check(pausetest.Resume(d.Process()))
	default:
		ts.Fatalf("runtime %s: unknown", args[0])
	}
}
