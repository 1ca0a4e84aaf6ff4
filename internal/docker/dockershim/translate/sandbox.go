package translate

import (
	"maps"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/identity"
)

// Sandbox returns the request for the pause container of a pod. seccomp is the text of a profile of the machine.
func (f Facts) Sandbox(r *runtimeapi.RunPodSandboxRequest, image, seccomp string) (client.ContainerCreateOptions,
	error) {
	var o client.ContainerCreateOptions
	config := r.GetConfig()
	linux := config.GetLinux()
	context := linux.GetSecurityContext()
	namespaces := context.GetNamespaceOptions()
	if err := checkUsers(namespaces); err != nil {
		return o, err
	}
	if err := policy(context.GetSupplementalGroupsPolicy()); err != nil {
		return o, err
	}
	handler, err := f.handler(r.GetRuntimeHandler())
	if err != nil {
		return o, err
	}
	who, err := user(context.GetRunAsUser(), context.GetRunAsGroup(), "")
	if err != nil {
		return o, err
	}
	security, err := f.security(profiles{seccomp: context.GetSeccomp(), seccompText: seccomp,
		selinux: context.GetSelinuxOptions(), noNewPrivs: true, byDefault: true})
	if err != nil {
		return o, err
	}
	spec := hash(r, "")
	o = client.ContainerCreateOptions{
		Name: identity.SandboxName(config.GetMetadata()),
		Config: &container.Config{
			Hostname: config.GetHostname(), Image: image, User: who,
			// A first process ignores SIGTERM by default. dockerd would wait 10 s for each sandbox when it stops.
			StopSignal: "SIGKILL",
			Labels:     identity.SandboxLabels(config.GetLabels(), config.GetAnnotations(), spec),
		},
		HostConfig: &container.HostConfig{
			NetworkMode: "none", IpcMode: container.IPCModeShareable, Runtime: handler, ReadonlyRootfs: true,
			LogConfig: logConfig(), OomScoreAdj: f.oomScore(sandboxOOMScore), SecurityOpt: security,
			ShmSize: shmSize, GroupAdd: groups(context.GetSupplementalGroups()),
			Resources: container.Resources{CPUShares: sandboxShares,
				CgroupParent: f.cgroupParent(linux.GetCgroupParent())},
		},
	}
	o.HostConfig.Sysctls = f.sysctls(linux.GetSysctls())
	if namespaces.GetNetwork() == runtimeapi.NamespaceMode_NODE {
		o.HostConfig.Sysctls = linux.GetSysctls()
		o.HostConfig.NetworkMode, o.HostConfig.UTSMode, o.Config.Hostname = host, host, ""
	}
	if namespaces.GetPid() == runtimeapi.NamespaceMode_NODE {
		o.HostConfig.PidMode = host
	}
	if namespaces.GetIpc() == runtimeapi.NamespaceMode_NODE {
		o.HostConfig.IpcMode, o.HostConfig.ShmSize = host, 0
	}
	return o, nil
}

// sysctls returns the kernel parameters of a pod with a network of its own. Docker turns IPv6 off in the namespace of a
// container without a network.
func (f Facts) sysctls(wanted map[string]string) map[string]string {
	if !f.IPv6 {
		return wanted
	}
	all := map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.default.disable_ipv6": "0"}
	maps.Copy(all, wanted)
	return all
}
