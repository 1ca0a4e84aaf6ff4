package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime/sandbox/holder"
)

func withOptions(o *runtimeapi.NamespaceOption) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: o}}}
}

func TestNamespacesOf(t *testing.T) {
	const host = runtimeapi.NamespaceMode_NODE
	all := holder.Namespaces{IPC: true, UTS: true, PID: true, Network: true}
	withUsers := all
	withUsers.User = true
	for name, test := range map[string]struct {
		options *runtimeapi.NamespaceOption
		want    holder.Namespaces
	}{
		"default": {nil, all},
		"host": {&runtimeapi.NamespaceOption{Network: host, Pid: host, Ipc: host},
			holder.Namespaces{}},
		"processes of each container": {&runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}, all},
		"users": {&runtimeapi.NamespaceOption{
			UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD}}, withUsers},
		"users of the host": {&runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{Mode: host}}, all},
	} {
		if diff := cmp.Diff(test.want, namespacesOf(withOptions(test.options))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSysctlsOfKeepsThoseOfThePod(t *testing.T) {
	config := withOptions(nil)
	config.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "80"}
	want := map[string]string{"net.ipv4.ip_unprivileged_port_start": "80", "net.ipv4.ping_group_range": "0 2147483647"}
	if diff := cmp.Diff(want, sysctlsOf(config, holder.Namespaces{Network: true})); diff != "" {
		t.Errorf("sysctls of a pod (-want +got):\n%s", diff)
	}
	if got := sysctlsOf(withOptions(nil), holder.Namespaces{}); len(got) > 0 {
		t.Errorf("sysctls of a pod in the host's network: %v", got)
	}
}

func TestResolvConf(t *testing.T) {
	got := resolvConf(&runtimeapi.DNSConfig{Servers: []string{"10.0.0.1", "10.0.0.2"}, Searches: []string{"a", "b"},
		Options: []string{"ndots:5", "edns0"}})
	want := "search a b\nnameserver 10.0.0.1\nnameserver 10.0.0.2\noptions ndots:5 edns0\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resolv.conf (-want +got):\n%s", diff)
	}
	if got := resolvConf(&runtimeapi.DNSConfig{}); got != "" {
		t.Errorf("resolv.conf of an empty configuration: %q", got)
	}
}

func TestCgroupOf(t *testing.T) {
	skip := &cgroups.Resources{SkipDevices: true}
	for name, test := range map[string]struct {
		parent  string
		systemd bool
		want    *cgroups.Cgroup
	}{
		"none":     {"", false, nil},
		"cgroupfs": {"/kubepods/podx", false, &cgroups.Cgroup{Path: "/kubepods/podx/id", Resources: skip}},
		"systemd": {"/kubepods.slice/kubepods-podx.slice", true, &cgroups.Cgroup{Parent: "kubepods-podx.slice",
			Name: "id", ScopePrefix: "cri-containerd", Systemd: true, Resources: skip}},
	} {
		got, err := cgroupOf(test.parent, "id", test.systemd)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := cgroupOf("/kubepods", "id", true); err == nil {
		t.Error("no error for a parent that is no slice under systemd")
	}
}

func TestLabelsNamesTheSetParts(t *testing.T) {
	for name, test := range map[string]struct {
		of   *runtimeapi.SELinuxOption
		want []string
	}{
		"none":  {nil, nil},
		"level": {&runtimeapi.SELinuxOption{Level: "s0:c1,c2"}, []string{"level:s0:c1,c2"}},
		"all": {&runtimeapi.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0"},
			[]string{"user:u", "role:r", "type:t", "level:s0"}},
	} {
		if diff := cmp.Diff(test.want, labels(test.of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCopyOfMissingFileIsEmpty(t *testing.T) {
	dir := t.TempDir()
	copied := filepath.Join(dir, "copy")
	if err := copyFile(filepath.Join(dir, "hosts"), copied); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(copied); err != nil || len(content) > 0 {
		t.Errorf("content %q, %v", content, err)
	}
	if err := copyFile(dir, copied); err == nil {
		t.Error("a directory was copied")
	}
}
