package translate

import (
	"slices"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/identity"
)

// Sandbox describes the sandbox that a container gets its namespaces from.
type Sandbox struct {
	ID      string
	Pod     *runtimeapi.PodSandboxMetadata
	Handler string
	// HostNetwork means that the pod is in the network of the machine.
	HostNetwork bool
	// LogPath is where the CRI expects the log of the container.
	LogPath string
}

// Container returns the request for a container of a pod. seccomp is the text of a profile of the machine.
func (f Facts) Container(s Sandbox, r *runtimeapi.CreateContainerRequest, seccomp string) (
	client.ContainerCreateOptions, error) {
	var o client.ContainerCreateOptions
	config := r.GetConfig()
	context := config.GetLinux().GetSecurityContext()
	who, err := user(context.GetRunAsUser(), context.GetRunAsGroup(), context.GetRunAsUsername())
	if err != nil {
		return o, err
	}
	cgroup, err := cgroupText(config.GetLinux().GetResources())
	if err != nil {
		return o, err
	}
	o = client.ContainerCreateOptions{
		Name: identity.ContainerName(s.Pod, config.GetMetadata()),
		Config: &container.Config{
			Image: config.GetImage().GetImage(), Entrypoint: config.GetCommand(), Cmd: config.GetArgs(), User: who,
			WorkingDir: config.GetWorkingDir(), OpenStdin: config.GetStdin(), StdinOnce: config.GetStdinOnce(),
			Tty: config.GetTty(), StopSignal: stopSignal(config.GetStopSignal()),
			// Probes of the kubelet replace the health check of the image.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels: identity.ContainerLabels(identity.Identity{Labels: config.GetLabels(),
				Annotations: config.GetAnnotations(), SandboxID: s.ID, LogPath: s.LogPath, Spec: hash(config, s.ID),
				Cgroup: cgroup}),
		},
	}
	for _, e := range config.GetEnvs() {
		o.Config.Env = append(o.Config.Env, e.GetKey()+"="+string(e.GetValue()))
	}
	if o.HostConfig, err = f.hostConfig(s, r, seccomp); err != nil {
		return o, err
	}
	return o, nil
}

// hostConfig returns the parts of a request that concern the machine.
func (f Facts) hostConfig(s Sandbox, r *runtimeapi.CreateContainerRequest, seccomp string) (*container.HostConfig,
	error) {
	config := r.GetConfig()
	context := config.GetLinux().GetSecurityContext()
	if err := checkUsers(context.GetNamespaceOptions()); err != nil {
		return nil, err
	}
	if err := policy(context.GetSupplementalGroupsPolicy()); err != nil {
		return nil, err
	}
	if len(context.GetCapabilities().GetAddAmbientCapabilities()) > 0 {
		return nil, unsupported("give a container ambient capabilities")
	}
	handler, err := f.handler(s.Handler)
	if err != nil {
		return nil, err
	}
	security, err := f.security(profiles{seccomp: context.GetSeccomp(), seccompText: seccomp,
		apparmor: appArmor(context), selinux: context.GetSelinuxOptions(), noNewPrivs: context.GetNoNewPrivs()})
	if err != nil {
		return nil, err
	}
	mounts, err := f.mounts(config.GetMounts())
	if err != nil {
		return nil, err
	}
	h := &container.HostConfig{
		NetworkMode: container.NetworkMode("container:" + s.ID), Runtime: handler, LogConfig: logConfig(),
		SecurityOpt: security, Mounts: mounts, Privileged: context.GetPrivileged(),
		ReadonlyRootfs: context.GetReadonlyRootfs(), GroupAdd: groups(context.GetSupplementalGroups()),
		CapAdd:      context.GetCapabilities().GetAddCapabilities(),
		CapDrop:     context.GetCapabilities().GetDropCapabilities(),
		OomScoreAdj: f.oomScore(config.GetLinux().GetResources().GetOomScoreAdj()),
		Resources:   Limits(config.GetLinux().GetResources()),
	}
	h.CgroupParent = f.cgroupParent(r.GetSandboxConfig().GetLinux().GetCgroupParent())
	namespaces(h, s, context.GetNamespaceOptions())
	if !h.Privileged {
		// For a nil list Docker hides paths of its own choice. For an empty list it hides none.
		h.MaskedPaths = append([]string{}, context.GetMaskedPaths()...)
		h.ReadonlyPaths = append([]string{}, context.GetReadonlyPaths()...)
	}
	return h, f.devices(h, config)
}

// namespaces sets the modes of the namespaces of a container.
func namespaces(h *container.HostConfig, s Sandbox, o *runtimeapi.NamespaceOption) {
	h.IpcMode = container.IpcMode("container:" + s.ID)
	if o.GetIpc() == runtimeapi.NamespaceMode_NODE {
		h.IpcMode = host
	}
	switch o.GetPid() {
	case runtimeapi.NamespaceMode_POD:
		h.PidMode = container.PidMode("container:" + s.ID)
	case runtimeapi.NamespaceMode_NODE:
		h.PidMode = host
	case runtimeapi.NamespaceMode_TARGET:
		h.PidMode = container.PidMode("container:" + o.GetTargetId())
	case runtimeapi.NamespaceMode_CONTAINER: // its own
	}
	if s.HostNetwork {
		h.UTSMode = host
	}
}

// devices adds the devices of the machine and CDI devices.
func (f Facts) devices(h *container.HostConfig, config *runtimeapi.ContainerConfig) error {
	for _, d := range config.GetDevices() {
		h.Devices = append(h.Devices, container.DeviceMapping{PathOnHost: d.GetHostPath(),
			PathInContainer: d.GetContainerPath(), CgroupPermissions: d.GetPermissions()})
	}
	var names []string
	for _, d := range config.GetCDIDevices() {
		names = append(names, d.GetName())
	}
	if len(names) == 0 {
		return nil
	}
	if !f.CDI {
		return unsupported("use CDI devices before version 25: %q", names)
	}
	h.DeviceRequests = append(h.DeviceRequests, container.DeviceRequest{Driver: "cdi", DeviceIDs: names})
	return nil
}

// mounts converts the mounts of a container.
func (f Facts) mounts(all []*runtimeapi.Mount) (converted []mount.Mount, err error) {
	for _, m := range all {
		c := mount.Mount{Type: mount.TypeBind, Source: m.GetHostPath(), Target: m.GetContainerPath(),
			ReadOnly: m.GetReadonly()}
		switch {
		case len(m.GetUidMappings())+len(m.GetGidMappings()) > 0:
			return nil, unsupported("map the owners of files of a mount: %s", c.Target)
		case len(m.GetMountOptions()) > 0:
			return nil, unsupported("mount %s with the options %q", c.Target, m.GetMountOptions())
		case m.GetImage().GetImage() != "":
			if !f.ImageMounts {
				return nil, unsupported("mount an image before version 28: %s", c.Target)
			}
			c.Type, c.Source, c.ReadOnly = mount.TypeImage, m.GetImage().GetImage(), false
			c.ImageOptions = &mount.ImageOptions{Subpath: m.GetImageSubPath()}
			converted = append(converted, c)
			continue
		}
		c.BindOptions = &mount.BindOptions{Propagation: propagations[m.GetPropagation()]}
		if m.GetRecursiveReadOnly() {
			switch {
			case !m.GetReadonly() || m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
				return nil, status.Errorf(codes.InvalidArgument,
					"mount %s is recursively read-only, and not read-only with private propagation", c.Target)
			case !f.RecursiveReadOnly:
				return nil, unsupported("mount read-only recursively before version 25: %s", c.Target)
			}
			c.BindOptions.ReadOnlyForceRecursive = true
		} else if f.RecursiveReadOnly && m.GetReadonly() {
			c.BindOptions.ReadOnlyNonRecursive = true // newer Engines are recursive by default
		}
		converted = append(converted, c)
	}
	return converted, nil
}

var propagations = map[runtimeapi.MountPropagation]mount.Propagation{
	runtimeapi.MountPropagation_PROPAGATION_PRIVATE:           mount.PropagationRPrivate,
	runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: mount.PropagationRSlave,
	runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:     mount.PropagationRShared,
}

// Limits converts the limits of a container. By default Docker allows as much swap as memory. So a container without a
// limit of swap gets none.
func Limits(r *runtimeapi.LinuxContainerResources) container.Resources {
	l := container.Resources{
		CPUPeriod: r.GetCpuPeriod(), CPUQuota: r.GetCpuQuota(), CPUShares: r.GetCpuShares(),
		Memory: r.GetMemoryLimitInBytes(), MemorySwap: r.GetMemorySwapLimitInBytes(),
		CpusetCpus: r.GetCpusetCpus(), CpusetMems: r.GetCpusetMems(),
	}
	if l.MemorySwap == 0 {
		l.MemorySwap = l.Memory
	}
	return l
}

// SeccompFile returns the path of the machine's seccomp profile that a container asks for; "" if it asks for none.
func SeccompFile(p *runtimeapi.SecurityProfile) string {
	if p.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
		return p.GetLocalhostRef()
	}
	return ""
}

// MountSources returns the paths of the machine that a container mounts. The caller makes missing directories, as
// containerd does.
func MountSources(all []*runtimeapi.Mount) (paths []string) {
	for _, m := range all {
		if m.GetImage().GetImage() == "" && m.GetHostPath() != "" {
			paths = append(paths, m.GetHostPath())
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(paths)))
}
