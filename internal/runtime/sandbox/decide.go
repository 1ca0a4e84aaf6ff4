package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime/sandbox/holder"
)

const (
	// oomScore is the score of holders: almost never ended for memory. Kubernetes uses the same for sandboxes.
	oomScore = -998
	// shmSize is the size of a pod's /dev/shm in bytes, as containerd and Docker have it.
	shmSize = 64 << 20
)

// namespacesOf returns the namespaces of a pod. A pod in the host's network has the host's name, and so no UTS
// namespace.
func namespacesOf(config *runtimeapi.PodSandboxConfig) holder.Namespaces {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	network := options.GetNetwork() != runtimeapi.NamespaceMode_NODE
	users := options.GetUsernsOptions()
	return holder.Namespaces{
		Network: network,
		UTS:     network,
		IPC:     options.GetIpc() != runtimeapi.NamespaceMode_NODE,
		PID:     options.GetPid() != runtimeapi.NamespaceMode_NODE,
		User:    users != nil && users.GetMode() == runtimeapi.NamespaceMode_POD,
	}
}

// sysctlsOf returns the sysctls of a pod by name. Unless the pod sets them itself, its processes may open ports below
// 1024 and send pings without a capability, as under containerd. The kernel refuses the latter in a user namespace.
func sysctlsOf(config *runtimeapi.PodSandboxConfig, of holder.Namespaces) map[string]string {
	named := map[string]string{}
	if of.Network {
		named["net.ipv4.ip_unprivileged_port_start"] = "0"
		if !of.User {
			named["net.ipv4.ping_group_range"] = "0 2147483647"
		}
	}
	maps.Copy(named, config.GetLinux().GetSysctls())
	return named
}

// mapping returns the ID mapping of a user namespace as CONTAINER:HOST:LENGTH.
func mapping(ids []*runtimeapi.IDMapping) (string, error) {
	if len(ids) != 1 || ids[0].GetLength() == 0 {
		return "", fmt.Errorf("user namespace with %d ID mappings: want one", len(ids))
	}
	return fmt.Sprintf("%d:%d:%d", ids[0].ContainerId, ids[0].HostId, ids[0].Length), nil
}

// resolvConf returns the content of resolv.conf for a DNS configuration.
func resolvConf(dns *runtimeapi.DNSConfig) string {
	var text strings.Builder
	if len(dns.Searches) > 0 {
		text.WriteString("search " + strings.Join(dns.Searches, " ") + "\n")
	}
	for _, server := range dns.Servers {
		text.WriteString("nameserver " + server + "\n")
	}
	if len(dns.Options) > 0 {
		text.WriteString("options " + strings.Join(dns.Options, " ") + "\n")
	}
	return text.String()
}

// cgroupOf returns the cgroup of a sandbox below its pod's, or nil if the pod names none. Its name is the one that runc
// gives to the cgroup of a pause container: statistics and tools know it.
func cgroupOf(parent, id string, systemd bool) (*cgroups.Cgroup, error) {
	if parent == "" {
		return nil, nil
	}
	c := &cgroups.Cgroup{Parent: parent, Name: id, Systemd: systemd, Resources: &cgroups.Resources{SkipDevices: true}}
	if systemd {
		c.Parent, c.ScopePrefix = filepath.Base(parent), "cri-containerd"
		if !strings.HasSuffix(c.Parent, ".slice") {
			return nil, fmt.Errorf("cgroup parent %q: the systemd driver wants a slice", parent)
		}
	} else {
		c.Path, c.Parent, c.Name = filepath.Join("/", parent, id), "", ""
	}
	return c, nil
}

// labels returns the options of an SELinux context in the form that the SELinux library parses.
func labels(o *runtimeapi.SELinuxOption) []string {
	var list []string
	for _, part := range []struct{ key, value string }{
		{"user", o.GetUser()}, {"role", o.GetRole()}, {"type", o.GetType()}, {"level", o.GetLevel()},
	} {
		if part.value != "" {
			list = append(list, part.key+":"+part.value)
		}
	}
	return list
}

// check reports a configuration that the controller cannot serve.
func check(config *runtimeapi.PodSandboxConfig, netns string) error {
	if config == nil {
		return errors.New("the sandbox has no configuration")
	}
	if namespacesOf(config).Network && netns == "" {
		return errors.New("the sandbox has no network namespace")
	}
	return nil
}
