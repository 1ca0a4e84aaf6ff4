package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/sysctl"
)

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
	name := sysctl.Name(c.Name)
	since, isSafe := sysctl.Safe()[name]
	if isSafe && sysctl.ParseKernel(in.Node.Info.KernelVersion).Before(since) {
		return fmt.Errorf("%q not allowlisted: it needs Linux %d.%d", name, since[0], since[1])
	}
	if !isSafe && !allowed(name, in.Config.UnsafeSysctls) {
		return fmt.Errorf("%q not allowlisted", name)
	}
	switch ns := sysctl.NamespaceOf(name); {
	case ns == "":
		return fmt.Errorf("%q is not known to be namespaced", name)
	case ns == sysctl.Net && in.Pod.Spec.HostNetwork, ns == sysctl.IPC && in.Pod.Spec.HostIPC:
		return fmt.Errorf("%q not allowed with host %s enabled", name, ns)
	}
	return nil
}

func allowed(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, open := strings.CutSuffix(sysctl.Name(p), "*")
		return name == prefix || open && strings.HasPrefix(name, prefix)
	})
}
