package runtime_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The containers of a pod have its sysctls, files and /dev/shm, and processes of their own. The holder is in the pod's
// cgroup and has the OOM score of sandboxes.
func testSandbox(t *testing.T, c *client) {
	namespaces := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{
		Metadata:  meta("holder"),
		DnsConfig: &cri.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"a.test"}},
		Linux: &cri.LinuxPodSandboxConfig{
			Sysctls: map[string]string{
				"kernel.shm_rmid_forced": "1", "net.ipv4.ip_local_port_range": "2000 3000",
			},
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces},
		},
	})
	main := c.container(t, id, pod, "main", "sleep")
	for path, want := range map[string]string{
		"/proc/sys/kernel/shm_rmid_forced":              "1\n",
		"/proc/sys/net/ipv4/ip_local_port_range":        "2000\t3000\n",
		"/proc/sys/net/ipv4/ip_unprivileged_port_start": "0\n",
		"/etc/hostname":    "holder\n",
		"/etc/resolv.conf": "search a.test\nnameserver 192.0.2.1\n",
	} {
		if diff := cmp.Diff(want, c.exec(t, main, "cat", path)); diff != "" {
			t.Errorf("%s in a container (-want +got):\n%s", path, diff)
		}
	}
	if got := strings.Fields(c.exec(t, main, "ls", "/proc")); processes(got) != 2 {
		t.Errorf("a container with processes of its own sees %v, want itself and ls", got)
	}
	if code := c.exitCode(t, c.container(t, id, pod, "writer", "write", "/dev/shm/file", "shared")); code != 0 {
		t.Errorf("a container that writes to /dev/shm exited with %d", code)
	}
	if got := c.exec(t, main, "cat", "/dev/shm/file"); !strings.HasPrefix(got, "shared") {
		t.Errorf("a container reads %q in /dev/shm", got)
	}
	pid := c.holder(t, id)
	if in := readFile(fmt.Sprintf("/proc/%d/cgroup", pid)); !strings.Contains(in, pod.Linux.CgroupParent+"/"+id+"\n") {
		t.Errorf("the cgroups of the holder are\n%s", in)
	}
	if got, want := readFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)), oomScore(t); got != want {
		t.Errorf("the OOM score of the holder is %q, want %q", got, want)
	}
}

// The holder and the containers of a pod with users of its own are in the pod's user namespace.
func testSandboxUsers(t *testing.T, c *client, dir string) {
	for _, path := range []string{dir, filepath.Join(dir, "root"), filepath.Join(dir, "state")} {
		if err := os.Chmod(path, 0o711); err != nil { // users of a pod need to pass through it
			t.Fatal(err)
		}
	}
	ids := []*cri.IDMapping{{HostId: 200000, ContainerId: 0, Length: 65536}}
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{
		Metadata: meta("users"),
		Linux: &cri.LinuxPodSandboxConfig{
			Sysctls: map[string]string{"kernel.shm_rmid_forced": "1", "net.ipv4.ip_unprivileged_port_start": "80"},
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{
				UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}}},
		},
	})
	main := c.container(t, id, pod, "main", "sleep")
	for _, pid := range []int{c.holder(t, id), c.pid(t, main)} {
		users := strings.Fields(readFile(fmt.Sprintf("/proc/%d/uid_map", pid)))
		if diff := cmp.Diff([]string{"0", "200000", "65536"}, users); diff != "" {
			t.Errorf("users of process %d (-want +got):\n%s", pid, diff)
		}
		if slack := readFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid)); slack != usualSlack {
			t.Errorf("timer slack of process %d: %q", pid, slack)
		}
	}
	if got := c.exec(t, main, "cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start"); got != "80\n" {
		t.Errorf("sysctl in the user namespace: %q", got)
	}
}

// oomScore is the OOM score of sandboxes in Kubernetes, unless this process may not give it.
func oomScore(t *testing.T) string {
	t.Helper()
	_, after, _ := strings.Cut(readFile("/proc/self/status"), "CapEff:\t")
	line, _, _ := strings.Cut(after, "\n")
	effective, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return readFile("/proc/self/oom_score_adj")
	}
	return "-998\n"
}

// processes counts the names that are process IDs.
func processes(names []string) (count int) {
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			count++
		}
	}
	return count
}

// exec runs a command of the workload in a container and returns its output.
func (c *client) exec(t *testing.T, container string, args ...string) string {
	t.Helper()
	response, err := c.ExecSync(t.Context(),
		&cri.ExecSyncRequest{ContainerId: container, Cmd: append([]string{"/workload"}, args...)})
	if err != nil || response.ExitCode != 0 {
		t.Fatalf("%v: %v, %v", args, response, err)
	}
	return string(response.Stdout)
}

// holder returns the process ID of a sandbox.
func (c *client) holder(t *testing.T, id string) int {
	t.Helper()
	response, err := c.PodSandboxStatus(t.Context(),
		&cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(response.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	return info.Pid
}

// The statistics of a sandbox cover its pod, and its metrics have its ID.
func testSandboxStats(t *testing.T, c *client) {
	id, pod := c.sandbox(t, &cri.PodSandboxConfig{Metadata: meta("measured")})
	c.container(t, id, pod, "main", "sleep")
	one, err := c.PodSandboxStats(t.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.ListPodSandboxStats(t.Context(), &cri.ListPodSandboxStatsRequest{
		Filter: &cri.PodSandboxStatsFilter{Id: id}})
	if err != nil || len(all.Stats) != 1 {
		t.Fatalf("list of statistics: %v, %v", all, err)
	}
	for _, stats := range []*cri.PodSandboxStats{one.Stats, all.Stats[0]} {
		linux := stats.Linux
		if stats.Attributes.Id != id || linux.Cpu.UsageCoreNanoSeconds.Value == 0 ||
			linux.Memory.WorkingSetBytes.Value == 0 || linux.Network.DefaultInterface.Name != "eth0" ||
			len(linux.Containers) != 1 {
			t.Errorf("statistics of a sandbox: %v", stats)
		}
	}
	metrics, err := c.ListPodSandboxMetrics(t.Context(), &cri.ListPodSandboxMetricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range metrics.PodMetrics {
		if of.PodSandboxId == id && len(of.Metrics) > 0 {
			return
		}
	}
	t.Errorf("no metrics of the sandbox among %v", metrics.PodMetrics)
}
