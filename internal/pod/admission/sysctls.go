package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// namespace is the kind of Linux namespace that isolates a sysctl.
type namespace string

const (
	ipcNamespace namespace = "ipc"
	netNamespace namespace = "net"
)

// safe returns the sysctls that every pod may set, with the first Linux version that isolates them by namespace.
func safe() map[string]version {
	return map[string]version{
		"kernel.shm_rmid_forced":              {},
		"net.ipv4.ip_local_port_range":        {},
		"net.ipv4.tcp_syncookies":             {},
		"net.ipv4.ping_group_range":           {},
		"net.ipv4.ip_unprivileged_port_start": {},
		"net.ipv4.ip_local_reserved_ports":    {3, 16},
		"net.ipv4.tcp_keepalive_time":         {4, 5},
		"net.ipv4.tcp_keepalive_intvl":        {4, 5},
		"net.ipv4.tcp_keepalive_probes":       {4, 5},
		"net.ipv4.tcp_fin_timeout":            {4, 6},
		"net.ipv4.tcp_rmem":                   {4, 15},
		"net.ipv4.tcp_wmem":                   {4, 15},
	}
}

// version is the major and minor version of a kernel.
type version [2]int

func (v version) before(o version) bool { return slices.Compare(v[:], o[:]) < 0 }

// kernel parses a release such as 6.1.0-31-amd64.
func kernel(release string) version {
	var v version
	for i, part := range strings.SplitN(release, ".", 3) {
		if i < len(v) {
			digits := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
			if digits >= 0 {
				part = part[:digits]
			}
			v[i], _ = strconv.Atoi(part)
		}
	}
	return v
}

// namespaceOf returns the namespace that isolates a sysctl; "" for a sysctl of the whole host.
func namespaceOf(name string) namespace {
	switch {
	case strings.HasPrefix(name, "net."):
		return netNamespace
	case strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem",
		strings.HasPrefix(name, "fs.mqueue."):
		return ipcNamespace
	}
	return ""
}

func checkSysctls(in In) Answer {
	s := in.Pod.Spec.SecurityContext
	if s == nil {
		return Answer{}
	}
	for _, c := range s.Sysctls {
		if err := checkSysctl(in, c); err != nil {
			return reject(SysctlForbidden, "forbidden sysctl: %v", err)
		}
	}
	return Answer{}
}

func checkSysctl(in In, c corev1.Sysctl) error {
	name := pod.SysctlName(c.Name)
	since, isSafe := safe()[name]
	if isSafe && kernel(in.Node.Info.KernelVersion).before(since) {
		return fmt.Errorf("%q not allowlisted: it needs Linux %d.%d", name, since[0], since[1])
	}
	if !isSafe && !allowed(name, in.Config.UnsafeSysctls) {
		return fmt.Errorf("%q not allowlisted", name)
	}
	switch ns := namespaceOf(name); {
	case ns == "":
		return fmt.Errorf("%q is not known to be namespaced", name)
	case ns == netNamespace && in.Pod.Spec.HostNetwork, ns == ipcNamespace && in.Pod.Spec.HostIPC:
		return fmt.Errorf("%q not allowed with host %s enabled", name, ns)
	}
	return nil
}

func allowed(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, open := strings.CutSuffix(pod.SysctlName(p), "*")
		return name == prefix || open && strings.HasPrefix(name, prefix)
	})
}
