package translate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockerlog"
)

func logs() container.LogConfig {
	return container.LogConfig{Type: "json-file", Config: dockerlog.Options()}
}

func TestSandboxRequest(t *testing.T) {
	f := Facts{IPv6: true, OOMFloor: -500, Handlers: map[string]bool{"kata": true}}
	r := &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "kata", Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u", Attempt: 1},
		Hostname: "web", Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod1",
			Sysctls: map[string]string{"net.core.somaxconn": "1024"}},
	}}
	got, err := f.Sandbox(r, "pause:1", "")
	if err != nil {
		t.Fatal(err)
	}
	want := &container.HostConfig{NetworkMode: "none", IpcMode: "shareable", Runtime: "kata", ReadonlyRootfs: true,
		LogConfig: logs(), OomScoreAdj: -500, SecurityOpt: []string{"no-new-privileges"}, ShmSize: 64 << 20,
		Sysctls: map[string]string{"net.core.somaxconn": "1024", "net.ipv6.conf.all.disable_ipv6": "0",
			"net.ipv6.conf.default.disable_ipv6": "0"},
		Resources: container.Resources{CPUShares: 2, CgroupParent: "/kubepods/pod1"}}
	if diff := cmp.Diff(want, got.HostConfig); diff != "" {
		t.Error(diff)
	}
	if got.Name != "k8s_POD_web_default_u_1" || got.Config.Hostname != "web" || got.Config.Image != "pause:1" ||
		got.Config.StopSignal != "SIGKILL" {
		t.Errorf("name %s, %+v", got.Name, got.Config)
	}
	again, err := f.Sandbox(r, "pause:1", "")
	if diff := cmp.Diff(got.Config.Labels, again.Config.Labels); diff != "" || err != nil {
		t.Errorf("the same request has other labels: %v %s", err, diff)
	}
}

// A pod in the machine's namespaces has neither a host name nor kernel parameters of its own.
func TestSandboxRequestOnTheHost(t *testing.T) {
	f := Facts{IPv6: true, Systemd: true}
	got, err := f.Sandbox(&runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web"}, Hostname: "web",
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods.slice/kubepods-pod1.slice",
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{
				Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE,
				Ipc: runtimeapi.NamespaceMode_NODE}}},
	}}, "pause:1", "")
	if err != nil {
		t.Fatal(err)
	}
	h := got.HostConfig
	if h.NetworkMode != "host" || h.UTSMode != "host" || h.PidMode != "host" || h.IpcMode != "host" ||
		h.Sysctls != nil || h.CgroupParent != "kubepods-pod1.slice" || got.Config.Hostname != "" {
		t.Errorf("%+v, host name %q", h, got.Config.Hostname)
	}
}

func TestContainerRequest(t *testing.T) {
	f := Facts{RecursiveReadOnly: true, CDI: true, ImageMounts: true, OOMFloor: -1000}
	r := &runtimeapi.CreateContainerRequest{
		SandboxConfig: &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/pod"}},
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: 2}, Image: &runtimeapi.ImageSpec{Image: "i"},
			Command: []string{"run"}, Args: []string{"x"},
			StopSignal: runtimeapi.Signal_SIGNAL_SIGRTMINPLUS1,
			Envs:       []*runtimeapi.KeyValue{{Key: "A", Value: []byte("b=c")}},
			Mounts: []*runtimeapi.Mount{
				{HostPath: "/a", ContainerPath: "/1", Readonly: true},
				{HostPath: "/a", ContainerPath: "/2", Readonly: true, RecursiveReadOnly: true},
				{HostPath: "/a", ContainerPath: "/3",
					Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
				{Image: &runtimeapi.ImageSpec{Image: "data"}, ContainerPath: "/4", ImageSubPath: "s"},
			},
			Devices:    []*runtimeapi.Device{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "rw"}},
			CDIDevices: []*runtimeapi.CDIDevice{{Name: "vendor/class=d"}},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100, CpuShares: 2,
					OomScoreAdj: 900},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					RunAsUser: &runtimeapi.Int64Value{Value: 1}, RunAsGroup: &runtimeapi.Int64Value{Value: 2},
					NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
					MaskedPaths:      []string{"/proc/x"}, NoNewPrivs: true,
					Seccomp:      &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost},
					Capabilities: &runtimeapi.Capability{AddCapabilities: []string{"SYS_TIME"}},
				},
			},
		},
	}
	got, err := f.Container(Sandbox{ID: "s", Pod: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"},
		LogPath: "/log"}, r, "{}")
	if err != nil {
		t.Fatal(err)
	}
	bind := func(target string, readonly bool, o mount.BindOptions) mount.Mount {
		return mount.Mount{Type: "bind", Source: "/a", Target: target, ReadOnly: readonly, BindOptions: &o}
	}
	want := &container.HostConfig{
		NetworkMode: "container:s", IpcMode: "container:s", LogConfig: logs(), OomScoreAdj: 900,
		SecurityOpt: []string{"no-new-privileges", "seccomp={}"}, CapAdd: []string{"SYS_TIME"},
		Mounts: []mount.Mount{
			bind("/1", true, mount.BindOptions{Propagation: "rprivate", ReadOnlyNonRecursive: true}),
			bind("/2", true, mount.BindOptions{Propagation: "rprivate", ReadOnlyForceRecursive: true}),
			bind("/3", false, mount.BindOptions{Propagation: "rshared"}),
			{Type: "image", Source: "data", Target: "/4", ImageOptions: &mount.ImageOptions{Subpath: "s"}},
		},
		MaskedPaths: []string{"/proc/x"}, ReadonlyPaths: []string{},
		Resources: container.Resources{Memory: 100, MemorySwap: 100, CPUShares: 2, CgroupParent: "/pod",
			Devices: []container.DeviceMapping{{PathOnHost: "/dev/a", PathInContainer: "/dev/b",
				CgroupPermissions: "rw"}},
			DeviceRequests: []container.DeviceRequest{{Driver: "cdi", DeviceIDs: []string{"vendor/class=d"}}}},
	}
	if diff := cmp.Diff(want, got.HostConfig); diff != "" {
		t.Error(diff)
	}
	c := got.Config
	if got.Name != "k8s_c_p_n_u_2" || c.User != "1:2" || c.StopSignal != "SIGRTMIN+1" ||
		strings.Join(c.Env, " ") != "A=b=c" || c.Healthcheck.Test[0] != "NONE" {
		t.Errorf("name %s, %+v", got.Name, c)
	}
	if back := Signal(c.StopSignal); back != runtimeapi.Signal_SIGNAL_SIGRTMINPLUS1 {
		t.Errorf("signal %s", back)
	}
}

// A request that Docker cannot serve fails with the code InvalidArgument. The error names the feature.
func TestRequestsThatDockerCannotServe(t *testing.T) {
	for name, edit := range map[string]func(*runtimeapi.ContainerConfig){
		"a user namespace of its own": func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{
				UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD}}
		},
		"groups that the image gives": func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
		},
		"ambient": func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddAmbientCapabilities: []string{"CHOWN"}}
		},
		"CDI": func(c *runtimeapi.ContainerConfig) {
			c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "v/c=d"}}
		},
		"image": func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{Image: &runtimeapi.ImageSpec{Image: "i"}, ContainerPath: "/i"}}
		},
		"recursively": func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/a", ContainerPath: "/a", Readonly: true,
				RecursiveReadOnly: true}}
		},
		"owners of files": func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/a", ContainerPath: "/a",
				UidMappings: []*runtimeapi.IDMapping{{}}}}
		},
		"AppArmor": func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Apparmor = &runtimeapi.SecurityProfile{
				ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "mine"}
		},
		"without run_as_user": func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.RunAsGroup = &runtimeapi.Int64Value{Value: 1}
		},
	} {
		c := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{}}}
		edit(c)
		_, err := Facts{}.Container(Sandbox{}, &runtimeapi.CreateContainerRequest{Config: c}, "")
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Facts{}).handler("kata"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown handler: %v", err)
	}
}

func TestLimitsThatTheEngineLacks(t *testing.T) {
	r := &runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.high": "1"},
		HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB"}}}
	text, err := cgroupText(r)
	if err != nil {
		t.Fatal(err)
	}
	back, err := CgroupOf(text)
	if err != nil {
		t.Fatal(err)
	}
	v1, v2 := map[string]string{"hugetlb.2MB.limit_in_bytes": "4194304"},
		map[string]string{"hugetlb.2MB.max": "4194304", "memory.high": "1"}
	if diff := cmp.Diff(v1, CgroupFiles(back, false)) + cmp.Diff(v2, CgroupFiles(back, true)); diff != "" {
		t.Error(diff)
	}
	if text, err := cgroupText(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1}); text != "" || err != nil {
		t.Errorf("a label for limits that the Engine has: %q, %v", text, err)
	}
}
