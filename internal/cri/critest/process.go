package critest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/process"
	"github.com/berth-run/berth/internal/cri"
)

func testStopGraceful(t *testing.T, env Env) {
	p := env.runPod(t, "graceful")
	id := p.runReady(t, "c", "sleep", "5")
	start := time.Now()
	env.stopContainer(t, id, 60)
	if took := time.Since(start); took > timeout {
		t.Errorf("took %s", took)
	}
	if got := env.exited(t, id); got.ExitCode != 5 {
		t.Errorf("exit code %d", got.ExitCode)
	}
}

func testStopKillsAfterGrace(t *testing.T, env Env) {
	p := env.runPod(t, "stubborn")
	id := p.runStubborn(t, "c")
	start := time.Now()
	env.stopContainer(t, id, 1)
	if took := time.Since(start); took < time.Second || took > timeout {
		t.Errorf("took %s", took)
	}
	if got := env.exited(t, id); got.ExitCode != killed || got.Reason != "Error" {
		t.Errorf("exit code %d, reason %q", got.ExitCode, got.Reason)
	}
}

func testStopWithoutGrace(t *testing.T, env Env) {
	p := env.runPod(t, "now")
	id := p.runReady(t, "c", "sleep", "5")
	env.stopContainer(t, id, 0)
	if got := env.exited(t, id); got.ExitCode != killed {
		t.Errorf("exit code %d", got.ExitCode)
	}
}

func testExecOutput(t *testing.T, env Env) {
	p := env.runPod(t, "exec")
	id := p.runReady(t, "c", "sleep")
	got := env.exec(t, id, "print", "to stdout", "then", "error", "to stderr", "then", "exit", "7")
	want := &runtimeapi.ExecSyncResponse{Stdout: []byte("to stdout\n"), Stderr: []byte("to stderr\n"), ExitCode: 7}
	if string(got.Stdout) != string(want.Stdout) || string(got.Stderr) != string(want.Stderr) ||
		got.ExitCode != want.ExitCode {
		t.Errorf("got %s, want %s", got, want)
	}
}

func testExecErrors(t *testing.T, env Env) {
	p := env.runPod(t, "exec")
	id := p.runReady(t, "c", "sleep")
	request := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"/does-not-exist"}, Timeout: 10}
	if resp, err := env.Client.Runtime.ExecSync(t.Context(), request); err == nil && resp.ExitCode < 126 {
		t.Errorf("program that does not exist: %s", resp)
	}
	env.stopContainer(t, id, 10)
	request.Cmd = []string{"/workload", "true"}
	if resp, err := env.Client.Runtime.ExecSync(t.Context(), request); err == nil {
		t.Errorf("exec in a container that has ended: %s", resp)
	}
}

func testExecTimeout(t *testing.T, env Env) {
	p := env.runPod(t, "exec")
	id := p.runReady(t, "c", "sleep")
	token := "exec-" + id
	start := time.Now()
	_, err := env.Client.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"/workload", "print", token, "then", "wait", "1h"}, Timeout: 1,
	})
	if took := time.Since(start); !cri.IsDeadline(err) || took < time.Second || took > timeout {
		t.Errorf("after %s: %v", took, err)
	}
	if env.Processes {
		eventually.True(t, "the command that timed out is killed", func() bool { return !running(t, token) })
	}
	if got := env.exec(t, id, "true"); got.ExitCode != 0 {
		t.Errorf("the next command in the container failed: %s", got)
	}
}

// When a command times out, the runtime also kills the processes that it has started.
func testExecTimeoutGroup(t *testing.T, env Env) {
	if !env.ExecGroups {
		t.Skip("the runtime kills the command alone")
	}
	p := env.runPod(t, "exec")
	id := p.runReady(t, "c", "sleep")
	_, err := env.Client.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"/workload", "fork", "2", "then", "wait", "1h"}, Timeout: 1,
	})
	if !cri.IsDeadline(err) {
		t.Fatal(err)
	}
	eventually.True(t, "only the container's main process is left, and no zombie", func() bool {
		return processes(t, id) == 1
	})
}

// processes counts the processes in a container's cgroup.
func processes(t *testing.T, id string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if groups, err := os.ReadFile(file); err == nil && strings.Contains(string(groups), id) {
			n++
		}
	}
	return n
}

// running reports whether any process of this machine has the argument arg.
func running(t *testing.T, arg string) bool {
	t.Helper()
	ids, err := process.IDs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(ids, func(id int) bool { return slices.Contains(process.Arguments(id), arg) })
}

// Pods that run at the same time do not affect each other.
func testParallel(t *testing.T, env Env) {
	const pods = 10
	ips := make([]string, pods)
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				p := env.runPod(t, "parallel")
				ips[i] = p.status(t).Network.GetIp()
				config := p.containerConfig("c", "print", fmt.Sprint(i), "then", "exit", fmt.Sprint(i))
				if got := env.exited(t, p.run(t, config)); got.ExitCode != int32(i) {
					t.Errorf("exit code %d", got.ExitCode)
				}
				if diff := cmp.Diff([]logLine{{"stdout", "F", fmt.Sprint(i)}}, p.log(t, config)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, ip := range ips {
		if ip == "" || seen[ip] {
			t.Errorf("pod %d has address %q", i, ip)
		}
		seen[ip] = true
	}
}

func testProcessNetwork(t *testing.T, env Env) {
	p, other := env.runPod(t, "server"), env.runPod(t, "client")
	config := p.containerConfig("server", "print", "ready", "then", "serve", ":8080")
	p.run(t, config)
	url := "http://" + p.status(t).Network.Ip + ":8080/"

	body := fetch(t, url)
	if !strings.Contains(body, "host server\n") {
		t.Errorf("host name in the pod: %s", body)
	}
	neighbour := p.runReady(t, "neighbour", "sleep")
	if got := env.exec(t, neighbour, "get", "http://127.0.0.1:8080/"); got.ExitCode != 0 {
		t.Errorf("loopback is not shared by the pod's containers: %s", got)
	}
	stranger := other.runReady(t, "stranger", "sleep")
	if got := env.exec(t, stranger, "get", url); got.ExitCode != 0 {
		t.Errorf("a pod cannot reach another pod: %s", got)
	}
	if got := env.exec(t, stranger, "get", "http://127.0.0.1:8080/"); got.ExitCode == 0 {
		t.Error("loopback is shared between pods")
	}
}

// fetch waits until the machine can get url from a pod, and returns the page.
func fetch(t *testing.T, url string) (body string) {
	t.Helper()
	// Each attempt uses a connection of its own, so that none outlives the pod.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	eventually.True(t, "the machine reaches "+url, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(request)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		content, err := io.ReadAll(resp.Body)
		body = string(content)
		return err == nil
	})
	return body
}

func testProcessHostPort(t *testing.T, env Env) {
	var listen net.ListenConfig
	free, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	p := env.runPod(t, "hostport", func(c *runtimeapi.PodSandboxConfig) {
		c.PortMappings = []*runtimeapi.PortMapping{{Protocol: runtimeapi.Protocol_TCP, HostPort: int32(port),
			ContainerPort: 8080}}
	})
	p.run(t, p.containerConfig("server", "serve", ":8080"))
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	if body := fetch(t, url); !strings.Contains(body, "host hostport\n") {
		t.Errorf("another pod answers: %s", body)
	}
	p.stop(t)
	dialer := net.Dialer{Timeout: time.Second}
	if conn, err := dialer.DialContext(t.Context(), "tcp4", free.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("the host port is still forwarded after the pod has stopped")
	}
}

func testProcessUser(t *testing.T, env Env) {
	p := env.runPod(t, "user")
	config := p.containerConfig("c", "id")
	config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: &runtimeapi.Int64Value{Value: 1000}, RunAsGroup: &runtimeapi.Int64Value{Value: 1001},
		SupplementalGroups: []int64{1002}, NoNewPrivs: true,
	}
	env.exited(t, p.run(t, config))
	got := p.log(t, config)
	if len(got) != 1 || !strings.HasPrefix(got[0].Text, "uid 1000 gid 1001 ") ||
		!strings.Contains(got[0].Text+" ", " 1002 ") {
		t.Errorf("identity %s", got)
	}
}

func testProcessRootFilesystem(t *testing.T, env Env) {
	p := env.runPod(t, "root")
	for name, readonly := range map[string]bool{"writable": false, "readonly": true} {
		config := p.containerConfig(name, "write", "/tmp/file", "text")
		config.Linux.SecurityContext.ReadonlyRootfs = readonly
		if got := env.exited(t, p.run(t, config)); (got.ExitCode != 0) != readonly {
			t.Errorf("%s: exit code %d", name, got.ExitCode)
		}
	}
}

func testProcessPodFiles(t *testing.T, env Env) {
	p := env.runPod(t, "files", func(c *runtimeapi.PodSandboxConfig) {
		c.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"svc.test"},
			Options: []string{"ndots:5"}}
	})
	config := p.containerConfig("c", "cat", "/etc/resolv.conf", "/etc/hostname")
	env.exited(t, p.run(t, config))
	var got []string
	for _, line := range p.log(t, config) {
		got = append(got, line.Text)
	}
	want := []string{"search svc.test", "nameserver 192.0.2.53", "options ndots:5", "files"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func testProcessOOM(t *testing.T, env Env) {
	p := env.runPod(t, "oom")
	// The container waits first, since shims begin to watch its memory only some time after the start.
	config := p.containerConfig("c", "wait", "1s", "then", "eat", fmt.Sprint(256<<20))
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20,
		MemorySwapLimitInBytes: 32 << 20}
	id := p.run(t, config)
	if got := env.exited(t, id); got.ExitCode != killed {
		t.Errorf("exit code %d", got.ExitCode)
	}
	// The runtime learns of the OOM kill and of the exit separately, in either order.
	eventually.True(t, "the reason is OOMKilled", func() bool { return env.container(t, id).Reason == "OOMKilled" })
}
