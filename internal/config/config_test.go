package config

import (
	"errors"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/config/embedded"
	"github.com/berth-run/berth/internal/config/gate"
	"github.com/berth-run/berth/internal/config/kubeletfile"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// compare lists the types with unexported fields.
func compare() cmp.Options {
	return cmp.Options{
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
		cmp.Comparer(func(a, b resource.Quantity) bool { return a.Equal(b) }),
		cmp.Comparer(func(a, b cpuset.CPUSet) bool { return a.String() == b.String() }),
		cmp.AllowUnexported(eviction.Amount{}),
		cmpopts.IgnoreFields(Config{}, "Kubelet"), // what the files say, as they say it
	}
}

// alone is the Config without files and flags.
func alone() *Config {
	c := &Config{
		RootDir: "/var/lib/berth", RunDir: "/run/berth", Socket: "/run/berth/berth.sock",
		CommandLine: commandLine(Flags{RootDir: "/var/lib/berth", RunDir: "/run/berth", CertDir: "/var/lib/berth/pki"}),
		NodeName:    "host-1",
		Sources: Sources{StaticPodPath: "/var/lib/berth/manifests", KeepMissing: true, ClaimRetention: time.Hour,
			FileCheckFrequency: 20 * time.Second,
			HTTPCheckFrequency: 20 * time.Second},
		Runtime: Runtime{RequestTimeout: 2 * time.Minute, CgroupDriver: "cgroupfs", ParallelPulls: 1,
			Embedded: embedded.Settings{PodNetwork: embedded.NetworkAuto}},
		Images: Images{HighThreshold: 85, LowThreshold: 80, MinimumAge: 2 * time.Minute,
			Verification: v1beta1.NeverVerifyPreloadedImages},
		Node: Node{
			MaxPods: 110, CgroupRoot: "/", KubeReserved: corev1.ResourceList{}, SystemReserved: corev1.ResourceList{},
			Eviction: eviction.Policy{Transition: 5 * time.Minute, Thresholds: hardThresholds(defaultHard())},
			Enforce:  Enforcement{Pods: true},
			Pinning: Pinning{ReconcilePeriod: 10 * time.Second,
				Topology: topology.Options{Policy: topology.None, Scope: topology.ScopeContainer, MaxNodes: 8}},
		},
		Pods: Pods{
			LogsDir: "/var/log/pods", ResolvConf: "/etc/resolv.conf", CPUCFSQuota: true,
			CPUCFSQuotaPeriod: 100 * time.Millisecond,
			PidsLimit:         -1, MaxRestartBackoff: 300 * time.Second, UsernsIDs: 65536,
			FlexVolumes: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
			Logs:        Logs{MaxSize: 10 << 20, MaxFiles: 5, Workers: 1},
		},
		Dead: DeadContainers{PerContainer: 1, Total: -1},
	}
	return c
}

// defaultHard is the default of evictionHard.
func defaultHard() map[string]string {
	return map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
		"imagefs.available": "15%", "imagefs.inodesFree": "5%"}
}

// hardThresholds returns the thresholds of evictionHard where the memory of all pods together is limited.
func hardThresholds(hard map[string]string) []eviction.Threshold {
	all, _ := eviction.Parse(eviction.Settings{Hard: hard, Allocatable: true})
	return all
}

// unlimitedThresholds returns the default thresholds where the memory of all pods together is not limited.
func unlimitedThresholds() []eviction.Threshold {
	all, _ := eviction.Parse(eviction.Settings{Hard: defaultHard()})
	return all
}

// parse returns the configuration for a file's text and a machine.
func parse(t *testing.T, text string) (*v1beta1.KubeletConfiguration, map[string]string) {
	t.Helper()
	l, err := kubeletfile.Parse("f.yaml", []byte(header+text))
	if err != nil {
		t.Fatal(err)
	}
	kc, origin, err := kubeletfile.Merge([]kubeletfile.Layer{l})
	if err != nil {
		t.Fatal(err)
	}
	return kc, origin
}

func TestBuild(t *testing.T) {
	tests := []struct {
		name, text string
		flags      Flags
		want       func(*Config) // changes the defaults
	}{
		{name: "defaults", want: func(*Config) {}},
		{
			name: "flags",
			flags: Flags{RootDir: "/srv/b/", HostnameOverride: " Node-A ", NodeLabels: map[string]string{"a": "b"},
				Embedded: embedded.Settings{CRIListen: "unix:///run/cri.sock", PodNetwork: embedded.NetworkCNI,
					CNIConfDir: "/etc/cni", NRISocket: "/run/nri.sock"},
				NodeIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}},
			want: func(c *Config) {
				c.RootDir, c.RunDir, c.Socket, c.NodeName = "/srv/b", "/srv/b/run", "/srv/b/berth.sock", "node-a"
				c.CommandLine = commandLine(Flags{RootDir: "/srv/b", RunDir: "/srv/b/run", CertDir: "/srv/b/pki",
					HostnameOverride: " Node-A "})
				c.Node.Labels, c.Runtime.Embedded = map[string]string{"a": "b"},
					embedded.Settings{CRIListen: "unix:///run/cri.sock", PodNetwork: embedded.NetworkCNI,
						CNIConfDir: "/etc/cni", NRISocket: "/run/nri.sock"}
				c.Node.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
				c.Sources.StaticPodPath = "/srv/b/manifests"
			},
		},
		{
			name: "dead containers",
			flags: Flags{Disk: DiskFlags{MinAge: time.Minute, PerContainer: new(0), Total: new(100)},
				Lock: Lock{File: "/run/kubelet.lock", Yield: true}},
			want: func(c *Config) {
				c.Lock = Lock{File: "/run/kubelet.lock", Yield: true}
				c.Dead = DeadContainers{MinAge: time.Minute, PerContainer: 0, Total: 100}
			},
		},
		{
			name: "sources",
			text: "staticPodPath: /m\nstaticPodURL: https://x/m.yaml\nstaticPodURLHeader: {x-a: " +
				"[b]}\nfileCheckFrequency: 3s\nhttpCheckFrequency: 0s\n",
			want: func(c *Config) {
				c.Sources = Sources{StaticPodPath: "/m", StaticPodURL: "https://x/m.yaml",
					StaticPodURLHeader: http.Header{"X-A": {"b"}}, KeepMissing: true, ClaimRetention: time.Hour,
					FileCheckFrequency: 3 * time.Second,
					HTTPCheckFrequency: 20 * time.Second}
			},
		},
		{
			name: "runtime",
			text: "containerRuntimeEndpoint: unix:///run/c.sock\nruntimeRequestTimeout: 10s\ncgroupDriver: " +
				"systemd\nmaxParallelImagePulls: 4\npodCIDR: 10.9.0.0/16, fd00:9::/64\n",
			want: func(c *Config) {
				c.Runtime = Runtime{Endpoint: "unix:///run/c.sock", RequestTimeout: 10 * time.Second,
					CgroupDriver: "systemd", ParallelPulls: 4, Embedded: c.Runtime.Embedded,
					PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"),
						netip.MustParsePrefix("fd00:9::/64")}}
			},
		},
		{
			name: "images",
			text: "imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: " +
				"1s\nimageMaximumGCAge: 1h\nimagePullCredentialsVerificationPolicy: " +
				"NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [busybox, example.com/team/*]\n",
			flags: Flags{Disk: DiskFlags{LoadedImages: true}},
			want: func(c *Config) {
				c.Images = Images{HighThreshold: 70, MinimumAge: time.Second, MaximumAge: time.Hour, Loaded: true,
					Verification: v1beta1.NeverVerifyAllowlistedImages,
					Allowlist:    []string{"busybox", "example.com/team/*"}}
			},
		},
		{
			name:  "credential providers",
			flags: Flags{Providers: Providers{Config: "/etc/p.yaml", BinDir: "/opt/p"}},
			want: func(c *Config) {
				c.Images.Providers = Providers{Config: "/etc/p.yaml", BinDir: "/opt/p"}
			},
		},
		{name: "no bound of pulls", text: "serializeImagePulls: false\n", want: func(c *Config) {
			c.Runtime.ParallelPulls = 0
		}},
		{name: "serial pulls said twice", text: "serializeImagePulls: true\nmaxParallelImagePulls: 1\n",
			want: func(c *Config) {
				c.Runtime.ParallelPulls = 1
			}},
		{
			name: "node",
			text: "maxPods: 7\npodsPerCore: 2\ncgroupRoot: /berth\nkubeReserved: {cpu: 100m}\nsystemReserved: " +
				"{memory: 1Gi, pid: '100'}\nevictionHard: {memory.available: 5%}\nregisterWithTaints: [{key: only, " +
				"value: db, effect: NoExecute}]\n",
			want: func(c *Config) {
				c.Node = Node{MaxPods: 7, PodsPerCore: 2, CgroupRoot: "/berth", Enforce: c.Node.Enforce,
					Pinning: c.Node.Pinning, Eviction: c.Node.Eviction,
					Taints:       []corev1.Taint{{Key: "only", Value: "db", Effect: corev1.TaintEffectNoExecute}},
					KubeReserved: corev1.ResourceList{"cpu": resource.MustParse("100m")},
					SystemReserved: corev1.ResourceList{"memory": resource.MustParse("1Gi"),
						"pid": resource.MustParse("100")}}
				c.Node.Eviction.Thresholds = hardThresholds(map[string]string{"memory.available": "5%"})
			},
		},
		{
			name: "enforcement",
			text: "enforceNodeAllocatable: [system-reserved, kube-reserved-compressible]\nsystemReservedCgroup: " +
				"/system.slice\nkubeReservedCgroup: /podruntime.slice\n" +
				"memoryThrottlingFactor: 0.5\nmemoryReservationPolicy: TieredReservation\nqosReserved: {memory: " +
				"50%}\nfeatureGates: {MemoryQoS: true, QOSReserved: true, DisableCPUQuotaWithExclusiveCPUs: false}\n",
			want: func(c *Config) {
				c.Node.Enforce = Enforcement{
					System:    ReservedCgroup{Path: "/system.slice"},
					Kube:      ReservedCgroup{Path: "/podruntime.slice", Compressible: true},
					MemoryQoS: &MemoryQoS{ThrottlingFactor: 0.5, Tiered: true}, QOSReservedMemory: 50,
					ThrottleExclusive: true,
				}
				c.Node.Eviction.Thresholds = unlimitedThresholds()
			},
		},
		{name: "gates off", text: "featureGates: {ContainerCheckpoint: false, HostnameOverride: false, " +
			"KubeletEnsureSecretPulledImages: false, NodeDeclaredFeatures: false, " +
			"PodReadyToStartContainersCondition: false, ResourceHealthStatus: false, ResourceHealthStatusMessage: " +
			"false, GracefulNodeShutdown: true, KubeletCrashLoopBackOffMax: false, KubeletSeparateDiskGC: false, " +
			"LocalStorageCapacityIsolationFSQuotaMonitoring: false}\n", want: func(c *Config) {
			c.Disabled = gate.Disabled{Checkpoint: true, HostnameOverride: true, ImageSecrets: true,
				DeclaredFeatures: true, StartCondition: true, ResourceHealth: true, ResourceHealthMessage: true,
				Storage: gate.Storage{SeparateDisk: true, Quotas: true}}
			c.Node.Storage.Walk = true
		}},
		{name: "nothing enforced", text: "enforceNodeAllocatable: [none]\n", want: func(c *Config) {
			c.Node.Enforce.Pods = false
			c.Node.Eviction.Thresholds = unlimitedThresholds()
		}},
		{
			name: "pinning",
			text: "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true', " +
				"strict-cpu-reservation: 'false'}\ncpuManagerReconcilePeriod: 5s\nreservedSystemCPUs: " +
				"0,4-5\nkubeReserved: {cpu: 100m, memory: 1Gi}\nsystemReserved: {cpu: '1'}\n" +
				"memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, " +
				"limits: {memory: 100Mi}}, {numaNode: 1, limits: {hugepages-2Mi: 2Mi}}]\n" +
				"topologyManagerPolicy: restricted\ntopologyManagerScope: pod\ntopologyManagerPolicyOptions: " +
				"{prefer-closest-numa-nodes: 'true', max-allowable-numa-nodes: '16'}\n",
			want: func(c *Config) {
				c.Node.KubeReserved = corev1.ResourceList{"memory": resource.MustParse("1Gi")}
				c.Node.SystemReserved = corev1.ResourceList{"cpu": resource.MustParse("3")}
				c.Node.Pinning = Pinning{
					CPUs: true, CPUOptions: cpu.Options{FullPCPUsOnly: true}, ReservedCPUs: cpuset.New(0, 4, 5),
					ReconcilePeriod: 5 * time.Second,
					Memory:          true,
					ReservedMemory: memory.Reserved{0: {"memory": 1 << 30},
						1: {"memory": 100 << 20, "hugepages-2Mi": 2 << 20}},
					Topology: topology.Options{Policy: topology.Restricted, Scope: topology.ScopePod,
						PreferClosest: true, MaxNodes: 16},
				}
			},
		},
		{name: "eviction",
			text: "evictionHard: {pid.available: '10'}\nevictionSoft: {pid.available: '20'}\n" +
				"evictionSoftGracePeriod: " +
				"{pid.available: 1m}\nevictionMinimumReclaim: {pid.available: '5'}\n" +
				"evictionPressureTransitionPeriod: 30s\nevictionMaxPodGracePeriod: 7\n",
			want: func(c *Config) {
				amount := func(text string) eviction.Amount {
					return hardThresholds(map[string]string{"pid.available": text})[0].Value
				}
				hard := eviction.Threshold{Signal: eviction.PIDAvailable, Minimum: amount("5"), Value: amount("10")}
				soft := hard
				soft.Value, soft.Grace = amount("20"), time.Minute
				c.Node.Eviction = eviction.Policy{Thresholds: []eviction.Threshold{hard, soft},
					Transition: 30 * time.Second,
					MaxGrace:   7 * time.Second}
			}},
		{name: "no limits of local storage", text: "localStorageCapacityIsolation: false\n",
			want: func(c *Config) { c.Node.Storage.Off = true }},
		{name: "thresholds over the defaults",
			text: "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 5%}\n", want: func(c *Config) {
				hard := defaultHard()
				hard["memory.available"] = "5%"
				c.Node.Eviction.Thresholds = hardThresholds(hard)
			}},
		{
			name: "pods",
			text: "podLogsDir: /logs/\nclusterDNS: [10.0.0.10]\nclusterDomain: cluster.local\nresolvConf: " +
				"''\ncpuCFSQuota: false\ncpuCFSQuotaPeriod: 1ms\npodPidsLimit: 64\nseccompDefault: true\n" +
				"containerLogMaxSize: 1M\ncontainerLogMaxFiles: 2\ncontainerLogMaxWorkers: 3\n" +
				"crashLoopBackOff: {maxContainerRestartPeriod: 1s}\nsingleProcessOOMKill: false\nmemorySwap: " +
				"{swapBehavior: LimitedSwap}\nallowedUnsafeSysctls: [net.*, kernel.sem]\nuserNamespaces: " +
				"{idsPerPod: 131072}\n",
			want: func(c *Config) {
				c.Pods = Pods{LogsDir: "/logs", ClusterDNS: []netip.Addr{netip.MustParseAddr("10.0.0.10")},
					ClusterDomain: "cluster.local", CPUCFSQuotaPeriod: time.Millisecond, PidsLimit: 64,
					SeccompDefault: true, Logs: Logs{MaxSize: 1_000_000, MaxFiles: 2, Workers: 3},
					MaxRestartBackoff: time.Second, SingleProcessOOMKill: new(bool), LimitedSwap: true,
					AllowedUnsafeSysctls: []string{"net.*", "kernel.sem"}, UsernsIDs: 131072,
					FlexVolumes: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"}
			},
		},
		{name: "no rotation of logs", text: "containerLogMaxSize: '-1'\n", want: func(c *Config) {
			c.Pods.Logs.MaxSize = -1
		}},
		{name: "tracing", text: "tracing: {}\n", want: func(c *Config) {
			c.Tracing = &Tracing{Endpoint: "localhost:4317"}
		}},
		{name: "tracing all", text: "tracing: {endpoint: 'c:1', samplingRatePerMillion: 1000000}\n",
			want: func(c *Config) {
				c.Tracing = &Tracing{Endpoint: "c:1", SamplingRatePerMillion: 1000000}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kc, _ := parse(t, tt.text)
			got, errs := build(tt.flags, kc, host{name: "Host-1", swap: true, cgroupV1: true})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			want := alone()
			tt.want(want)
			if diff := cmp.Diff(want, got, compare()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalid(t *testing.T) {
	tests := []struct {
		name, text string
		flags      Flags
		host       string
		want       []string
	}{
		{name: "flags",
			flags: Flags{NodeLabels: map[string]string{"a b": "c"},
				Embedded: embedded.Settings{CRIListen: "tcp://x", PodNetwork: "bridge", NRISocket: "nri.sock"},
				NodeIPs:  []netip.Addr{netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("10.0.0.1")}},
			want: []string{
				`--cri-listen: Invalid value: "tcp://x": must be unix:// and an absolute path, such as ` +
					`unix:///run/containerd/containerd.sock`,
				`--nri-socket: Invalid value: "nri.sock": must be an absolute path`,
				`--pod-network: Unsupported value: "bridge": supported values: "auto", "cni"`,
				`--node-labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' ` +
					`or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  ` +
					`or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				`--node-ip: Invalid value: "224.0.0.1": must be an address of this machine, or 0.0.0.0 or :: for ` +
					`the default one of that family`,
				`--node-ip: Invalid value: "10.0.0.1": must be the only one of its family`,
			}},
		{name: "a path too long for a socket", text: "containerRuntimeEndpoint: unix:///" + strings.Repeat("r", 110),
			want: []string{`f.yaml: containerRuntimeEndpoint: Invalid value: "/` + strings.Repeat("r", 110) +
				`": must be at most 107 bytes long, is 111: choose a shorter path`}},
		{name: "host name", host: "my_host", want: []string{
			`--hostname-override: Invalid value: "my_host": the host's name is not a valid node name, set ` +
				`--hostname-override: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric ` +
				`characters, '-' or '.', and must start and end with an alphanumeric character (e.g. ` +
				`'example.com', regex used for validation is ` +
				`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		}},
		{name: "sources",
			text: "staticPodPath: m\nstaticPodURL: ftp://x\nfileCheckFrequency: -1s\nstaticPodURLHeader: " +
				"{'a b': [c]}\n", want: []string{
				`f.yaml: fileCheckFrequency: Invalid value: "-1s": must be more than 0s; leave it out for the default`,
				`f.yaml: staticPodPath: Invalid value: "m": must be an absolute path`,
				`f.yaml: staticPodURL: Invalid value: "ftp://x": must be an http or https URL`,
				`f.yaml: staticPodURLHeader: Invalid value: "a b": a valid HTTP header must consist of ` +
					`alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is ` +
					`'[-A-Za-z0-9]+')`,
			}},
		{name: "runtime",
			text: "containerRuntimeEndpoint: tcp://x\nimageServiceEndpoint: unix:///y\ncgroupDriver: " +
				"x\nserializeImagePulls: true\nmaxParallelImagePulls: 2\npodCIDR: 10.0.0.1/16,10.1.0.0/16,x\n",
			want: []string{
				`f.yaml: podCIDR: Invalid value: "10.0.0.1/16": must be the first address of the range, 10.0.0.0/16`,
				`f.yaml: podCIDR: Invalid value: "10.1.0.0/16": must be the only range of its family`,
				`f.yaml: podCIDR: Invalid value: "x": must be a range such as 10.85.0.0/16 or ` +
					`10.85.0.0/16,fd00:85::/64`,
				`f.yaml: maxParallelImagePulls: Invalid value: 2: must be 1, or left out, with ` +
					`serializeImagePulls: true`,
				`f.yaml: containerRuntimeEndpoint: Invalid value: "tcp://x": must be unix:// and an absolute path, ` +
					`such as unix:///run/containerd/containerd.sock`,
				`f.yaml: imageServiceEndpoint: Invalid value: "unix:///y": must be containerRuntimeEndpoint ` +
					`("tcp://x"), or left out: the runtime that runs containers also pulls their images`,
				`f.yaml: cgroupDriver: Unsupported value: "x": supported values: "cgroupfs", "systemd"`,
			}},
		{name: "gates",
			text: "featureGates: {GracefulNodeShutdown: false, KubeletCrashLoopBackOffMax: false}\n" +
				"shutdownGracePeriod: 10s\ncrashLoopBackOff: {maxContainerRestartPeriod: 5s}\n",
			want: []string{
				`f.yaml: shutdownGracePeriod: Invalid value: "10s": needs the feature gate GracefulNodeShutdown: true`,
				`f.yaml: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: "5s": needs the feature gate ` +
					`KubeletCrashLoopBackOffMax: true`,
			}},
		{name: "images",
			text: "imageGCHighThresholdPercent: 101\nimageGCLowThresholdPercent: 101\nimageMinimumGCAge: " +
				"-1s\nimageMaximumGCAge: 1s\nimagePullCredentialsVerificationPolicy: " +
				"Sometimes\npreloadedImagesVerificationAllowlist: ['a:1', 'b*']\n",
			flags: Flags{Providers: Providers{BinDir: "/opt/p"}}, want: []string{
				`--image-credential-provider-config: Invalid value: "": must be given together with ` +
					`--image-credential-provider-bin-dir, or not at all`,
				`f.yaml: imageMinimumGCAge: Invalid value: "-1s": must be more than 0s; leave it out for the default`,
				`f.yaml: imageGCHighThresholdPercent: Invalid value: 101: must be between 0 and 100`,
				`f.yaml: imageGCLowThresholdPercent: Invalid value: 101: must be between 0 and 100`,
				`f.yaml: imageGCLowThresholdPercent: Invalid value: 101: must be less than ` +
					`imageGCHighThresholdPercent, 101`,
				`f.yaml: imagePullCredentialsVerificationPolicy: Unsupported value: "Sometimes": supported values: ` +
					`"NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"`,
				`f.yaml: preloadedImagesVerificationAllowlist: Invalid value: ["a:1","b*"]: must be left out ` +
					`unless imagePullCredentialsVerificationPolicy is NeverVerifyAllowlistedImages`,
				`f.yaml: preloadedImagesVerificationAllowlist[0]: Invalid value: "a:1": must be a repository ` +
					`without tag and digest, or a prefix of repositories that ends in /*`,
				`f.yaml: preloadedImagesVerificationAllowlist[1]: Invalid value: "b*": must be a repository ` +
					`without tag and digest, or a prefix of repositories that ends in /*`,
			}},
		{name: "taints",
			text: "registerWithTaints: [{key: a b, value: c d, effect: Never}, {key: a, effect: NoExecute}, {key: a, " +
				"value: b, effect: NoExecute}]\n", want: []string{
				`f.yaml: registerWithTaints[0].key: Invalid value: "a b": name part must consist of alphanumeric ` +
					`characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. ` +
					`'MyName',  or 'my.name',  or '123-abc', regex used for validation is ` +
					`'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				`f.yaml: registerWithTaints[0].value: Invalid value: "c d": a valid label must be an empty string ` +
					`or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an ` +
					`alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for ` +
					`validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
				`f.yaml: registerWithTaints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", ` +
					`"PreferNoSchedule", "NoExecute"`,
				`f.yaml: registerWithTaints[2]: Duplicate value: "a:NoExecute"`,
			}},
		{name: "enforcement",
			text: "enforceNodeAllocatable: [none, nodes, kube-reserved, kube-reserved]\nmemoryThrottlingFactor: " +
				"1.5\nmemoryReservationPolicy: Some\nqosReserved: {memory: 101%}\n", want: []string{
				`f.yaml: enforceNodeAllocatable: Invalid value: ["none","nodes","kube-reserved","kube-reserved"]: ` +
					`must be none alone, or without it`,
				`f.yaml: enforceNodeAllocatable: Unsupported value: "nodes": supported values: "pods", ` +
					`"system-reserved", "system-reserved-compressible", "kube-reserved", ` +
					`"kube-reserved-compressible", "none"`,
				`f.yaml: enforceNodeAllocatable: Duplicate value: "kube-reserved"`,
				`kubeReservedCgroup: Invalid value: "": must be set to the cgroup that enforceNodeAllocatable limits`,
				`f.yaml: memoryThrottlingFactor: Invalid value: 1.5: must be more than 0 and at most 1`,
				`f.yaml: memoryReservationPolicy: Unsupported value: "Some": supported values: "None", ` +
					`"TieredReservation"`,
				`f.yaml: qosReserved: Invalid value: "101%": must be a percentage between 0% and 100%`,
				`f.yaml: qosReserved: Invalid value: {"memory":"101%"}: needs the feature gate QOSReserved: true`,
			}},
		{name: "node",
			text: "maxPods: -1\npodsPerCore: -1\ncgroupRoot: x\ncgroupsPerQOS: false\nkubeReserved: {gpu: '1', cpu: " +
				"'-1'}\nsystemReserved: {memory: 1Gb}\nevictionHard: {memory.free: '1', nodefs.available: 101%, " +
				"memory.available: x}\nevictionSoft: {memory.available: 1Gi}\n" +
				"evictionPressureTransitionPeriod: -1s\nevictionMaxPodGracePeriod: -1\n", want: []string{
				`f.yaml: kubeReserved[cpu]: Invalid value: "-1": must be a quantity of at least 0, such as 500m or 1Gi`,
				`f.yaml: kubeReserved: Unsupported value: "gpu": supported values: "cpu", "memory", ` +
					`"ephemeral-storage", "pid"`,
				`f.yaml: systemReserved[memory]: Invalid value: "1Gb": must be a quantity of at least 0, such as ` +
					`500m or 1Gi`,
				`f.yaml: evictionHard[memory.available]: Invalid value: "x": "x" is neither a quantity, such as ` +
					`100Mi, nor a percentage, such as 5%: quantities must match the regular expression ` +
					`'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
				`f.yaml: evictionHard: Unsupported value: "memory.free": supported values: "memory.available", ` +
					`"allocatableMemory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", ` +
					`"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available"`,
				`f.yaml: evictionHard[nodefs.available]: Invalid value: "101%": eviction percentage threshold ` +
					`nodefs.available must be <= 100%: 101%`,
				`f.yaml: evictionSoft[memory.available]: Invalid value: "1Gi": grace period must be specified for ` +
					`the soft eviction threshold memory.available: add it to evictionSoftGracePeriod`,
				`f.yaml: evictionPressureTransitionPeriod: Invalid value: "-1s": must not be negative`,
				`f.yaml: evictionMaxPodGracePeriod: Invalid value: -1: must not be negative`,
				`f.yaml: maxPods: Invalid value: -1: must not be negative; 0 stands for the default`,
				`f.yaml: podsPerCore: Invalid value: -1: must not be negative; 0 sets no bound`,
				`f.yaml: cgroupRoot: Invalid value: "x": must be an absolute path`,
				`f.yaml: cgroupsPerQOS: Invalid value: false: must be true: pods are always in cgroups by their ` +
					`QoS class`,
			}},
		{name: "pinning",
			text: "cpuManagerPolicy: dynamic\ncpuManagerPolicyOptions: {full-pcpus-only: 'true', " +
				"distribute-cpus-across-cores: 'true'}\nmemoryManagerPolicy: BestEffort\nreservedMemory: [{numaNode: " +
				"0, limits: {cpu: 1, memory: 0}}, {numaNode: 0, limits: {memory: 1Gi}}]\nreservedSystemCPUs: " +
				"3-1\ntopologyManagerPolicy: strict\ntopologyManagerScope: node\ntopologyManagerPolicyOptions: " +
				"{max-allowable-numa-nodes: '7', prefer-closest-numa-nodes: maybe, x: z}\n", want: []string{
				`f.yaml: reservedMemory[0]: Invalid value: "cpu": must be memory or hugepages- and a size, such as ` +
					`hugepages-2Mi`,
				`f.yaml: reservedMemory[0]: Invalid value: "0": must be more than 0 of memory`,
				`f.yaml: reservedMemory[1]: Invalid value: 0: must be the only entry of this NUMA node for memory`,
				`f.yaml: topologyManagerPolicy: Unsupported value: "strict": supported values: "none", ` +
					`"best-effort", "restricted", "single-numa-node"`,
				`f.yaml: topologyManagerScope: Unsupported value: "node": supported values: "container", "pod"`,
				`f.yaml: topologyManagerPolicyOptions[max-allowable-numa-nodes]: Invalid value: "7": must be a ` +
					`number of at least 8`,
				`f.yaml: topologyManagerPolicyOptions[prefer-closest-numa-nodes]: Invalid value: "maybe": must be ` +
					`true or false`,
				`f.yaml: topologyManagerPolicyOptions: Unsupported value: "x": supported values: ` +
					`"max-allowable-numa-nodes", "prefer-closest-numa-nodes"`,
				`f.yaml: cpuManagerPolicy: Unsupported value: "dynamic": supported values: "none", "static"`,
				`f.yaml: memoryManagerPolicy: Unsupported value: "BestEffort": supported values: "None", "Static"`,
				`f.yaml: reservedSystemCPUs: Invalid value: "3-1": must be a list of CPUs such as 0-3,8`,
				`f.yaml: cpuManagerPolicyOptions: Invalid value: ` +
					`{"distribute-cpus-across-cores":"true","full-pcpus-only":"true"}: must be left out unless ` +
					`cpuManagerPolicy is static`,
				`f.yaml: cpuManagerPolicyOptions: Invalid value: ` +
					`{"distribute-cpus-across-cores":"true","full-pcpus-only":"true"}: full-pcpus-only and ` +
					`distribute-cpus-across-cores cannot be used together: leave one out`,
			}},
		{name: "static without what it needs",
			text: "cpuManagerPolicy: static\nmemoryManagerPolicy: Static\ncpuManagerPolicyOptions: {fast: 'true'}\n",
			want: []string{
				`f.yaml: cpuManagerPolicyOptions: Invalid value: {"fast":"true"}: unknown option "fast"`,
				`f.yaml: cpuManagerPolicy: Invalid value: "static": needs at least one CPU that pods cannot get: ` +
					`set reservedSystemCPUs, or cpu in systemReserved or kubeReserved`,
				`f.yaml: memoryManagerPolicy: Invalid value: "Static": needs reservedMemory: as much memory on all ` +
					`NUMA nodes together as kubeReserved, systemReserved and evictionHard (memory.available) take`,
			}},
		{name: "options of two kinds",
			text: "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\nsystemReservedCgroup: " +
				"/system\ncpuManagerPolicyOptions: {align-by-socket: 'true'}\ntopologyManagerPolicy: " +
				"single-numa-node\n", want: []string{
				`f.yaml: reservedSystemCPUs: Invalid value: "0": must be left out with systemReservedCgroup or ` +
					`kubeReservedCgroup`,
				`f.yaml: cpuManagerPolicyOptions: Invalid value: {"align-by-socket":"true"}: align-by-socket ` +
					`cannot be used with topologyManagerPolicy single-numa-node: leave one out`,
			}},
		{name: "logs", text: "containerLogMaxSize: big\ncontainerLogMaxFiles: 1\ncontainerLogMaxWorkers: 0\n",
			want: []string{
				`f.yaml: containerLogMaxSize: Invalid value: "big": must be a quantity such as 10Mi; one below 0 ` +
					`turns the rotation of logs off`,
				`f.yaml: containerLogMaxFiles: Invalid value: 1: must be at least 2: the file that is written to ` +
					`and a rotated one`,
				`f.yaml: containerLogMaxWorkers: Invalid value: 0: must be at least 1`,
			}},
		{name: "pods",
			text: "podLogsDir: l\nresolvConf: r\nclusterDNS: [x]\nclusterDomain: A b\ncpuCFSQuotaPeriod: " +
				"2s\ncrashLoopBackOff: {maxContainerRestartPeriod: 301s}\nmemorySwap: {swapBehavior: " +
				"All}\nallowedUnsafeSysctls: [vm.swappiness]\n", want: []string{
				`f.yaml: clusterDNS[0]: Invalid value: "x": must be an IP address`,
				`f.yaml: allowedUnsafeSysctls[0]: Invalid value: "vm.swappiness": must be kernel.shm*, ` +
					`kernel.msg*, kernel.sem, fs.mqueue.*, net.* or a part of these; * can only be at the end`,
				`f.yaml: podLogsDir: Invalid value: "l": must be an absolute path`,
				`f.yaml: resolvConf: Invalid value: "r": must be an absolute path`,
				`f.yaml: clusterDomain: Invalid value: "A b": a lowercase RFC 1123 subdomain must consist of lower ` +
					`case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric ` +
					`character (e.g. 'example.com', regex used for validation is ` +
					`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				`f.yaml: cpuCFSQuotaPeriod: Invalid value: "2s": must be between 1ms and 1s`,
				`f.yaml: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: "5m1s": must be between 1s and ` +
					`300s`,
				`f.yaml: memorySwap.swapBehavior: Unsupported value: "All": supported values: "NoSwap", "LimitedSwap"`,
			}},
		{name: "machine and the rest",
			text: "tracing: {samplingRatePerMillion: 1000001}\nfailSwapOn: true\nfailCgroupV1: " +
				"true\nprotectKernelDefaults: true\nrunOnce: true\nmaxParallelImagePulls: 0\n", want: []string{
				`f.yaml: maxParallelImagePulls: Invalid value: 0: must be at least 1`,
				`f.yaml: tracing.samplingRatePerMillion: Invalid value: 1000001: must be between 0 and 1000000`,
				`f.yaml: failSwapOn: Invalid value: true: swap is on: turn it off (swapoff -a), or write ` +
					`failSwapOn: false into the file of --config`,
				`f.yaml: failCgroupV1: Invalid value: true: this machine has cgroup v1: boot it with ` +
					`systemd.unified_cgroup_hierarchy=1, or write failCgroupV1: false into the file of --config`,
				`f.yaml: protectKernelDefaults: Invalid value: true: vm.overcommit_memory is 0, not 1: set them ` +
					`(sysctl -w, and in /etc/sysctl.d), or write protectKernelDefaults: false into the file of ` +
					`--config`,
				`f.yaml: runOnce: Invalid value: true: has been removed: use "berth run", which runs pods and ends ` +
					`with them`,
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kc, origin := parse(t, tt.text)
			if tt.host == "" {
				tt.host = "host"
			}
			_, errs := build(tt.flags, kc,
				host{name: tt.host, swap: true, cgroupV1: true, kernel: []string{"vm.overcommit_memory is 0, not 1"}})
			if diff := cmp.Diff(tt.want, lines(located(errs, origin))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	in := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	base := in("base.yaml",
		header+"maxPods: 1\npodsPerCore: 1\nclusterDNS: [10.0.0.1, 10.0.0.2]\nfeatureGates: {A: true}\nkubeReserved: "+
			"{cpu: 100m, memory: 1Gi}\n")
	drops := filepath.Join(dir, "conf.d")
	in("conf.d/20-b.conf",
		header+"maxPods: 3\nclusterDNS: [10.0.0.9]\nfeatureGates: {B: true}\nkubeReserved: {cpu: null, memory: 2Gi}\n")
	in("conf.d/10-a.conf", header+"maxPods: 2\nclusterDomain: a\n")
	skipped := in("conf.d/README", "not a configuration")
	in("conf.d/sub/30-c.conf", header+"clusterDomain: c\nfailSwapOn: false\n")

	c, warnings, err := Load(Flags{ConfigFile: base, ConfigDir: drops, RootDir: "/srv/berth", HostnameOverride: "node"})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		Name          string
		MaxPods       int32
		PodsPerCore   int32
		ClusterDomain string
		ClusterDNS    []netip.Addr
		KubeReserved  corev1.ResourceList
	}
	want := result{"node", 3, 1, "c", []netip.Addr{netip.MustParseAddr("10.0.0.9")},
		corev1.ResourceList{"memory": resource.MustParse("2Gi")}}
	got := result{c.NodeName, c.Node.MaxPods, c.Node.PodsPerCore, c.Pods.ClusterDomain, c.Pods.ClusterDNS,
		c.Node.KubeReserved}
	if diff := cmp.Diff(want, got, compare()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	last := filepath.Join(drops, "20-b.conf")
	wantWarnings := []kubeletfile.Warning{
		{Origin: skipped, Text: "is ignored: only .conf files are read"},
		{Origin: last, Field: "featureGates.A", Text: "has no effect: there is no such feature gate here"},
		{Origin: last, Field: "featureGates.B", Text: "has no effect: there is no such feature gate here"},
	}
	if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}

	// All files are checked. An error names the last file that sets the field.
	bad := in("conf.d/40-bad.conf", "kind: KubeletConfiguration\n")
	worse := in("conf.d/50-worse.conf", header+"maxPods: many\n")
	_, _, err = Load(Flags{ConfigFile: base, ConfigDir: drops})
	if diff := cmp.Diff([]string{
		bad + `: wants apiVersion kubelet.config.k8s.io/v1beta1 and kind KubeletConfiguration, has "" and ` +
			`"KubeletConfiguration"`,
		worse + `: line 3: maxPods: wants a whole number (int32), got "many"`,
	}, lines(err)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	in("conf.d/40-bad.conf", header+"maxPods: -1\n")
	in("conf.d/50-worse.conf", header+"podsPerCore: -1\n")
	_, _, err = Load(Flags{ConfigFile: base, ConfigDir: drops, HostnameOverride: "node"})
	if diff := cmp.Diff([]string{
		bad + ": maxPods: Invalid value: -1: must not be negative; 0 stands for the default",
		worse + ": podsPerCore: Invalid value: -1: must not be negative; 0 sets no bound",
	}, lines(err)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

// The field missingManifests is Berth's own. The last file that has it counts, and the flag overrides it.
func TestLoadMissingManifests(t *testing.T) {
	const end, none = "missingManifests: end\n", ""
	tests := []struct {
		name, first, second, flag string
		want                      bool
		err                       string
	}{
		{"not set", none, none, "", true, ""},
		{"end", end, none, "", false, ""},
		{"a later file", end, "missingManifests: keep\n", "", true, ""},
		{"a later file without it", end, "maxPods: 3\n", "", false, ""},
		{"null stands for the default", end, "missingManifests: null\n", "", true, ""},
		{"flag", end, none, "keep", true, ""},
		{"unknown", end, "missingManifests: stop\n", "",
			false, "2.conf: missingManifests: wants keep or end, got stop"},
		{"no text", "missingManifests: 3\n", none, "keep",
			false, "1.conf: missingManifests: wants keep or end, got 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"1.conf": tt.first, "2.conf": tt.second} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(header+text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			flags := Flags{ConfigDir: dir}
			flags.Absent.Manifests.Missing = tt.flag
			c, warnings, err := Load(flags)
			if tt.err != "" {
				if err == nil || !strings.HasSuffix(err.Error(), tt.err) {
					t.Errorf("error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || len(warnings) > 0 {
				t.Fatalf("warnings %v, error %v", warnings, err)
			}
			if c.Sources.KeepMissing != tt.want {
				t.Errorf("KeepMissing is %t, want %t", c.Sources.KeepMissing, tt.want)
			}
		})
	}
}

func TestLoadWithoutFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := Load(Flags{RootDir: "state", HostnameOverride: "node"})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %v", err, warnings)
	}
	if want := filepath.Join(here, "state"); c.RootDir != want || c.RunDir != want+"/run" ||
		c.Socket != want+"/berth.sock" {
		t.Errorf("root %s, run %s, socket %s", c.RootDir, c.RunDir, c.Socket)
	}
	for _, f := range []Flags{{ConfigFile: "none.yaml"}, {ConfigDir: "none.d"}} {
		if _, _, err := Load(f); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// Any text gives a Config or an error, never a panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "maxPods: 1\nevictionHard: {memory.available: 5%}\ntracing: {}\npodCIDR: ',,'\n"))
	f.Add([]byte(header +
		"logging: {flushFrequency: 5s, vmodule: [{filePattern: a, verbosity: 1}], options: {json: " +
		"{infoBufferSize: 1Ki}}}\n"))
	f.Add([]byte(header +
		"kubeReserved: {cpu: 1e99}\nstaticPodURL: 'http://%'\nshutdownGracePeriodByPodPriority: [{priority: 1}]\n"))
	f.Add([]byte(header + "reservedSystemCPUs: 0-4294967295\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := kubeletfile.Parse("f", text)
		if err != nil {
			return
		}
		kc, origin, err := kubeletfile.Merge([]kubeletfile.Layer{l, l})
		if err != nil {
			t.Fatalf("a file that was read cannot be merged: %v", err)
		}
		kubeletfile.Warnings(kc, origin, false, serves(kc, false))
		if _, errs := build(Flags{}, kc, host{name: "host"}); len(errs) > 0 {
			_ = located(errs, origin).Error()
		}
	})
}

// Each root directory has an address of its own, away from the loopback addresses of others.
func TestStreamAddress(t *testing.T) {
	all := netip.MustParsePrefix("127.64.0.0/10")
	seen := map[netip.Addr]string{}
	for _, root := range []string{DefaultRootDir, JoinedRootDir, "/srv/a", "/srv/b"} {
		a := (&Config{RootDir: root}).StreamAddress()
		if !all.Contains(a) || seen[a] != "" {
			t.Errorf("the address of %s is %s; of %q too", root, a, seen[a])
		}
		seen[a] = root
	}
}
