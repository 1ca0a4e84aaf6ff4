package sysctl

import (
	"slices"
	"strconv"
	"strings"
)

// Namespace is the kind of Linux namespace that isolates a sysctl.
type Namespace string

// The namespaces that isolate sysctls.
const (
	IPC Namespace = "ipc"
	Net Namespace = "net"
)

// Safe returns the sysctls that every pod may set, with the first Linux version that isolates them by namespace.
func Safe() map[string]Kernel {
	return map[string]Kernel{
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

// Kernel is the major and minor version of a kernel.
type Kernel [2]int

// Before reports whether a kernel is older than another one.
func (v Kernel) Before(o Kernel) bool { return slices.Compare(v[:], o[:]) < 0 }

// ParseKernel parses a release such as 6.1.0-31-amd64.
func ParseKernel(release string) Kernel {
	var v Kernel
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

// NamespaceOf returns the namespace that isolates a sysctl; "" for a sysctl of the whole host.
func NamespaceOf(name string) Namespace {
	switch {
	case strings.HasPrefix(name, "net."):
		return Net
	case strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem",
		strings.HasPrefix(name, "fs.mqueue."):
		return IPC
	}
	return ""
}
