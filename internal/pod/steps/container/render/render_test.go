package render

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
)

func TestConfig(t *testing.T) {
	lowest := int64(-500)
	// Each case renders the container "app" of testdata/NAME.yaml.
	cases := map[string]func(*Input){
		"minimal":       func(*Input) {},
		"env":           func(*Input) {},
		"resource-refs": func(in *Input) { in.QOS = corev1.PodQOSBurstable },
		"burstable": func(in *Input) {
			in.QOS = corev1.PodQOSBurstable
			in.Node.CFSQuota, in.Node.SwapController = true, true
			in.Node.HugePages = []string{"2MB", "1GB"}
		},
		"guaranteed-v2": func(in *Input) {
			in.QOS = corev1.PodQOSGuaranteed
			in.Node.CgroupV2, in.Node.GroupOOMKill, in.Node.SwapController = true, true, true
			in.Node.CFSQuota, in.Node.CFSPeriod = true, 50*time.Millisecond
			in.Node.MinOOMScoreAdj = &lowest
		},
		"limited-swap": func(in *Input) {
			in.QOS = corev1.PodQOSBurstable
			in.Node.CgroupV2, in.Node.SwapController, in.Node.LimitedSwap = true, true, true
			in.Node.SwapCapacity = 4 << 30
		},
		"sidecar":   func(in *Input) { in.QOS = corev1.PodQOSBurstable },
		"pod-level": func(in *Input) { in.QOS, in.Node.CFSQuota = corev1.PodQOSBurstable, true },
		"ephemeral": func(in *Input) { in.TargetID = "container-7" },
		"host":      func(*Input) {},
		"restricted": func(in *Input) {
			in.Image.Uid = &runtimeapi.Int64Value{Value: 0}
			in.Node.MaskedPaths = []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"}
		},
		"profiles":           func(*Input) {},
		"annotated-apparmor": func(in *Input) { in.Image.Uid, in.Image.Username = nil, "nobody" },
		"mounts": func(in *Input) {
			in.Volumes = []string{"/pods/6b1e/volumes/data", "/srv/conf", "/srv/conf",
				"/pods/6b1e/volume-subpaths/shared/app/3"}
			in.Mounted = map[string]pod.Volume{"data": {Groups: []int64{700}}, "conf": {HostLabels: true}, "shared": {},
				"disk": {Path: "/dev/sdb", Block: true}}
			in.HostsFile, in.TerminationLog = "/pods/6b1e/etc-hosts", "/pods/6b1e/containers/app/0"
			in.Node.RecursiveReadOnly, in.Node.SELinux = true, true
			in.Userns = &runtimeapi.UserNamespace{
				Mode: runtimeapi.NamespaceMode_POD,
				Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}},
				Gids: []*runtimeapi.IDMapping{{HostId: 131072, Length: 65536}},
			}
		},
		"lifecycle": func(in *Input) { in.RestartCount, in.Backoff = 3, 40*time.Second },
	}
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, name)
			edit(&in)
			got, err := Config(in)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("testdata", name+".golden"), inClear(t, got))
		})
	}
}

func input(t *testing.T, name string) Input {
	t.Helper()
	p := readPod(t, filepath.Join("testdata", name+".yaml"))
	c, ok := pod.FindContainer(p, "app")
	if !ok {
		t.Fatalf("%s.yaml has no container app", name)
	}
	return Input{
		Pod: p, Container: c, QOS: corev1.PodQOSBestEffort,
		Image:  &runtimeapi.Image{Id: "sha256:8b1e", Uid: &runtimeapi.Int64Value{Value: 65534}},
		PodIPs: []string{"10.88.0.5", "fd00::5"},
		Node: Node{
			MemoryCapacity: 8 << 30,
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("7Gi"),
				corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
			},
			HostIPs:     []string{"192.0.2.1", "2001:db8::1"},
			SeccompRoot: "/var/lib/berth/seccomp",
		},
	}
}

func TestConfigRefuses(t *testing.T) {
	yes, no := true, false
	root, user, tooLarge := int64(0), int64(7), int64(1<<40)
	env := func(from corev1.EnvVarSource) func(*Input) {
		return func(in *Input) { in.Container.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &from}} }
	}
	field := func(path string) func(*Input) {
		return env(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}})
	}
	mount := func(m corev1.VolumeMount) func(*Input) {
		m.Name, m.MountPath = "data", "/data"
		return func(in *Input) {
			in.Container.VolumeMounts, in.Volumes = []corev1.VolumeMount{m}, []string{"/srv"}
		}
	}
	security := func(sc corev1.SecurityContext) func(*Input) {
		return func(in *Input) { in.Container.SecurityContext = &sc }
	}
	nonRoot := func(sc corev1.SecurityContext, image *runtimeapi.Image) func(*Input) {
		sc.RunAsNonRoot = &yes
		return func(in *Input) { in.Container.SecurityContext, in.Image = &sc, image }
	}
	slave := corev1.MountPropagationHostToContainer
	enabled, bidirectional, odd := corev1.RecursiveReadOnlyEnabled, corev1.MountPropagationBidirectional,
		corev1.MountPropagationMode("Odd")
	oddMode, oddGroups, signal := corev1.RecursiveReadOnlyMode("Odd"), corev1.SupplementalGroupsPolicy("Odd"),
		corev1.Signal("SIGODD")
	climbing := "../../etc/passwd"
	cases := []struct {
		want string
		edit func(*Input)
	}{
		{`cannot find block volume "disk" to map into container "app"`, func(in *Input) {
			in.Container.VolumeDevices = []corev1.VolumeDevice{{Name: "disk"}}
		}},
		{`container "app" has the unknown stopSignal "SIGODD"`, func(in *Input) {
			in.Container.Lifecycle = &corev1.Lifecycle{StopSignal: &signal}
		}},
		{`waiting for ConfigMap default/c`, func(in *Input) {
			in.Container.EnvFrom = []corev1.EnvFromSource{
				{
					ConfigMapRef: &corev1.ConfigMapEnvSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}
		}},
		{`waiting for Secret default/s`, func(in *Input) {
			in.Container.EnvFrom = []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
		}},
		{`waiting for ConfigMap default/c`,
			env(
				corev1.EnvVarSource{
					ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}})},
		{`waiting for Secret default/s`,
			env(
				corev1.EnvVarSource{
					SecretKeyRef: &corev1.SecretKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}})},
		{`environment variable "X": file "f" is not in volume "v"`,
			env(corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{Path: "f", VolumeName: "v"}})},
		{`environment variable "X": valueFrom names no source`, env(corev1.EnvVarSource{})},
		{`unsupported fieldPath: metadata.labels`, field("metadata.labels")},
		{`fieldPath "spec.x['y']" does not support subscript`, field("spec.x['y']")},
		{`invalid key subscript in metadata.labels['a b']`, field("metadata.labels['a b']")},
		{`unsupported pod version: v2`,
			env(
				corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v2",
					FieldPath: "metadata.name"}})},
		{`unsupported container resource: limits.gpu`,
			env(corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.gpu"}})},
		{`container gone not found`,
			env(
				corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "gone",
					Resource: "limits.cpu"}})},
		{`volume mount "data" has the invalid mountPropagation "Odd"`,
			mount(corev1.VolumeMount{MountPropagation: &odd})},
		{`volume "data" requested recursive read-only mode, but it is not read-only`,
			mount(corev1.VolumeMount{RecursiveReadOnly: &enabled})},
		{`mountPropagation Bidirectional is available only to privileged containers`,
			mount(corev1.VolumeMount{MountPropagation: &bidirectional})},
		{`but it is not compatible with propagation "HostToContainer"`,
			mount(corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled, MountPropagation: &slave})},
		{`but it is not supported by the runtime`,
			mount(corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled})},
		{`unknown recursive read-only mode "Odd"`,
			mount(corev1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &oddMode})},
		{`container's runAsUser breaks non-root policy (pod: "web_default(6b1e)", container: app)`,
			nonRoot(corev1.SecurityContext{RunAsUser: &root}, &runtimeapi.Image{})},
		{`container has runAsNonRoot and image will run as root (pod: "web_default(6b1e)", container: app)`,
			nonRoot(corev1.SecurityContext{}, &runtimeapi.Image{})},
		{`image has non-numeric user (www), cannot verify user is non-root`,
			nonRoot(corev1.SecurityContext{}, &runtimeapi.Image{Username: "www"})},
		{`image has an invalid user id (1099511627776)`,
			nonRoot(corev1.SecurityContext{}, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: tooLarge}})},
		{`unknown seccomp profile type "Odd"`,
			security(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Odd"}})},
		{`localhostProfile must be set`,
			security(
				corev1.SecurityContext{
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost}})},
		{`localhostProfile "../../etc/passwd" must be a path below /var/lib/berth/seccomp`,
			security(
				corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost,
					LocalhostProfile: &climbing}})},
		{`missing localhost apparmor profile name`,
			security(
				corev1.SecurityContext{
					AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost}})},
		{`unknown apparmor profile type: "Odd"`,
			security(corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "Odd"}})},
		{`unsupported supplementalGroupsPolicy: Odd`, func(in *Input) {
			in.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &oddGroups}
		}},
		{"", nonRoot(corev1.SecurityContext{RunAsUser: &user}, &runtimeapi.Image{})},
		{"", security(corev1.SecurityContext{RunAsNonRoot: &no, RunAsUser: &root})},
	}
	for _, c := range cases {
		in := input(t, "minimal")
		c.edit(&in)
		_, err := Config(in)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

func TestSubPaths(t *testing.T) {
	cases := []struct {
		mount corev1.VolumeMount
		want  string
		fails string
	}{
		{corev1.VolumeMount{}, "", ""},
		{corev1.VolumeMount{SubPath: "a/b"}, "a/b", ""},
		{corev1.VolumeMount{SubPath: "$(POD)"}, "$(POD)", ""},
		{corev1.VolumeMount{SubPathExpr: "logs/$(POD)/$$(x)"}, "logs/web/$(x)", ""},
		{corev1.VolumeMount{SubPathExpr: "$(B)/$(A)/$(B)"}, "", "missing value for A, B"},
		{corev1.VolumeMount{SubPathExpr: "$(EMPTY)"}, "", "missing value for EMPTY"},
		{corev1.VolumeMount{SubPathExpr: "/$(POD)"}, "",
			`subPath "/web" of volume mount "data" must not be an absolute path`},
		{corev1.VolumeMount{SubPath: "a/../../b"}, "",
			`subPath "a/../../b" of volume mount "data" must not contain '..'`},
		{corev1.VolumeMount{SubPath: "a..b"}, "a..b", ""},
	}
	for _, c := range cases {
		in := input(t, "minimal")
		in.Container.Env = []corev1.EnvVar{
			{Name: "POD",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "EMPTY"},
		}
		c.mount.Name = "data"
		in.Container.VolumeMounts = []corev1.VolumeMount{c.mount}
		got, err := SubPaths(in)
		switch {
		case c.fails != "":
			if err == nil || err.Error() != c.fails {
				t.Errorf("%+v: error %v, want %q", c.mount, err, c.fails)
			}
		case err != nil || got[0] != c.want:
			t.Errorf("%+v: %q, %v, want %q", c.mount, got, err, c.want)
		}
	}
}

func TestWantsHosts(t *testing.T) {
	own := []corev1.VolumeMount{{MountPath: "/etc/hosts"}}
	cases := []struct {
		host   bool
		mounts []corev1.VolumeMount
		ips    []string
		want   bool
	}{
		{ips: []string{"10.0.0.1"}, want: true},
		{host: true, want: true},
		{want: false},
		{host: true, mounts: own, want: false},
	}
	for _, c := range cases {
		p := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: c.host}}
		if got := WantsHosts(p, pod.Container{Container: &corev1.Container{VolumeMounts: c.mounts}},
			c.ips); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestResources checks the quota of a container and, on cgroup v2, the files besides its shares and limit.
func TestResources(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		all := corev1.ResourceList{}
		if cpu != "" {
			all[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			all[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return all
	}
	guaranteed, burstable, bestEffort := corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort
	throttling, tiered := &config.MemoryQoS{ThrottlingFactor: 0.9},
		&config.MemoryQoS{ThrottlingFactor: 0.5, Tiered: true}
	own := exempt("app")
	other := exempt("other")
	none := map[string]string{"memory.min": "0", "memory.low": "0"}
	for _, test := range []struct {
		name             string
		class            corev1.PodQOSClass
		requests, limits corev1.ResourceList
		edit             func(*Node)
		quota            int64
		unified          map[string]string
	}{
		{"a quota, and no memory QoS", burstable, list("1", "64Mi"), list("2", "128Mi"), func(*Node) {}, 200000, nil},
		{"quotas are off", burstable, list("1", "64Mi"), list("2", "128Mi"), func(n *Node) {
			n.CFSQuota = false
		}, 0, nil},
		{"no CPU limit", burstable, list("1", "64Mi"), nil, func(*Node) {}, 0, nil},
		{"CPUs of its own", guaranteed, list("2", "64Mi"), list("2", "64Mi"), func(n *Node) {
			n.Quota = own
		}, -1, nil},
		{"CPUs of its own, and quotas are off", guaranteed, list("2", "64Mi"), list("2", "64Mi"), func(n *Node) {
			n.Quota, n.CFSQuota = own, false
		}, -1, nil},
		{"another container has CPUs of its own", guaranteed, list("2", "64Mi"), list("2", "64Mi"), func(n *Node) {
			n.Quota = other
		}, 200000, nil},
		{
			"slowed down between request and limit, in whole pages", burstable, list("", "100Mi"), list("", "200Mi"),
			func(n *Node) {
				n.MemoryQoS = throttling
			},
			0, map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "199229440"},
		},
		{
			"without a limit, what the node gives counts", burstable, list("", "1Gi"), nil, func(n *Node) {
				n.MemoryQoS = throttling
			},
			0, map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "6871945216"},
		},
		{"what is requested is the limit: nothing is slowed down", guaranteed, list("1", "100Mi"), list("1", "100Mi"),
			func(n *Node) {
				n.MemoryQoS = throttling
			}, 100000, none},
		{"Guaranteed memory is protected", guaranteed, list("1", "100Mi"), list("1", "100Mi"), func(n *Node) {
			n.MemoryQoS = tiered
		}, 100000, map[string]string{"memory.min": "104857600"}},
		{
			"Burstable memory is protected as long as there is other", burstable, list("", "100Mi"), list("", "200Mi"),
			func(n *Node) {
				n.MemoryQoS = tiered
			},
			0, map[string]string{"memory.low": "104857600", "memory.high": "157286400"},
		},
		{"nothing is asked for: neither", bestEffort, nil, nil, func(n *Node) { n.MemoryQoS = tiered }, 0, none},
		{"version 1 has none of it", burstable, list("", "100Mi"), list("", "200Mi"), func(n *Node) {
			n.MemoryQoS, n.CgroupV2 = tiered, false
		}, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := input(t, "minimal")
			in.QOS, in.Node.CgroupV2, in.Node.CFSQuota = test.class, true, true
			in.Container.Resources = corev1.ResourceRequirements{Requests: test.requests, Limits: test.limits}
			test.edit(&in.Node)
			got := Resources(in)
			if got.CpuQuota != test.quota {
				t.Errorf("quota %d, want %d", got.CpuQuota, test.quota)
			}
			if diff := cmp.Diff(test.unified, got.Unified); diff != "" {
				t.Errorf("files of version 2 (-want +got):\n%s", diff)
			}
		})
	}
}

// exempt is the name of the container of the pod web that has no quota.
type exempt string

func (e exempt) Unthrottled(p *corev1.Pod, c pod.Container) bool {
	return p.Name == "web" && c.Name == string(e)
}
