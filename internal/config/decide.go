package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/base/quantity"
	"github.com/berth-run/berth/internal/config/gate"
	"github.com/berth-run/berth/internal/config/kubeletfile"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/node/eviction/storage"
)

const (
	defaultOTLP = "localhost:4317"
	// maxRestartPeriod bounds crashLoopBackOff.maxContainerRestartPeriod.
	maxRestartPeriod = 300 * time.Second
)

// host holds what Load has read from the machine.
type host struct {
	name     string
	swap     bool // whether any swap is in use
	cgroupV1 bool
	kernel   []string // parameters that differ from the kubelet's, see kernel.Wrong
	runtime  string   // $CONTAINER_RUNTIME_ENDPOINT
}

// build fills in defaults and checks everything. Paths in flags must be absolute. If there are errors, the Config is
// incomplete.
func build(f Flags, files *v1beta1.KubeletConfiguration, h host) (*Config, field.ErrorList) {
	kc := kubeletfile.Complete(files, rootDir(f), f.Kubeconfig != "")
	in := &input{kc: kc, files: files}
	f = readFlags(in, f)
	c := &Config{RootDir: f.RootDir, RunDir: f.RunDir, Socket: f.Socket, Lock: f.Lock, Kubelet: kc,
		CommandLine: commandLine(f)}
	c.NodeName = readNodeName(in, f, h)
	c.Sources = readSources(in, f)
	c.Runtime = readRuntime(in, f, h)
	c.Images = readImages(in, f)
	c.Node = readNode(in, f)
	c.Pods = readPods(in)
	c.Tracing = readTracing(in)
	if !f.Apart {
		c.Cluster, c.Offline = readCluster(in, f), readOffline(f)
		c.Server = readServer(in, f)
		c.Shutdown = readShutdown(in)
		checkMachine(in, h)
	}
	c.Disabled = gate.Read(kc)
	in.Add(gate.Faults(files))
	c.Dead = readDead(in, f.Disk)
	checkLock(in, f.Lock)
	if kc.RunOnce {
		in.Invalid("runOnce", true, `has been removed: use "berth run", which runs pods and ends with them`)
	}
	return c, in.All()
}

// SocketOf returns the path of the agent's socket for a root directory. It is in /run/berth for the two default
// roots, and berth.sock in any other root. An empty root is a default root.
func SocketOf(root string) string {
	if root == "" || isDefault(filepath.Clean(root)) {
		return "/run/berth/berth.sock"
	}
	return filepath.Join(root, "berth.sock")
}

// Instance is part of the names of things on the machine, such as bridges, that agents of different root directories
// must not share. It is empty for DefaultRootDir, and 8 hexadecimal digits for any other root.
func (c *Config) Instance() string {
	if c.RootDir == DefaultRootDir {
		return ""
	}
	sum := sha256.Sum256([]byte(c.RootDir))
	return hex.EncodeToString(sum[:4])
}

// StreamAddress is the loopback address where a runtime in this process serves exec, attach and port-forward. The
// agent's firewall keeps users other than root away from it. It is in 127.64.0.0/10, where systemd and others have no
// addresses. Each root directory has its own; two that have the same by chance do not disturb each other.
func (c *Config) StreamAddress() netip.Addr {
	sum := sha256.Sum256([]byte(c.RootDir))
	return netip.AddrFrom4([4]byte{127, 64 | sum[0]&63, sum[1], sum[2]})
}

// HasDefaultRoot reports whether the root directory is one of the two default ones.
func (c *Config) HasDefaultRoot() bool { return isDefault(c.RootDir) }

// isDefault reports whether a root directory is one of the two default ones. At most one agent of a machine uses them.
func isDefault(root string) bool { return root == DefaultRootDir || root == JoinedRootDir }

// rootDir returns the root directory of the flags, or the default one.
func rootDir(f Flags) string {
	root := DefaultRootDir
	if f.Kubeconfig != "" {
		root = JoinedRootDir
	}
	return filepath.Clean(cmp.Or(f.RootDir, root))
}

func readFlags(in *input, f Flags) Flags {
	f.RootDir = rootDir(f)
	runDir := filepath.Join(f.RootDir, "run")
	if isDefault(f.RootDir) {
		runDir = "/run/berth"
	}
	f.RunDir, f.Socket = cmp.Or(f.RunDir, runDir), cmp.Or(f.Socket, SocketOf(f.RootDir))
	f.CertDir = certDir(f)
	in.Absolute("--runtime-cgroups", f.RuntimeCgroups)
	f.Embedded = readEmbedded(in, f.Embedded)
	if (f.Providers.Config == "") != (f.Providers.BinDir == "") {
		in.Invalid("--image-credential-provider-config", f.Providers.Config,
			"must be given together with --image-credential-provider-bin-dir, or not at all")
	}
	in.Add(metavalidation.ValidateLabels(f.NodeLabels, field.NewPath("--node-labels")))
	for i, ip := range f.NodeIPs {
		if !ip.IsValid() || ip.IsMulticast() {
			in.Invalid("--node-ip", ip.String(),
				"must be an address of this machine, or 0.0.0.0 or :: for the default one of that family")
		}
		if slices.ContainsFunc(f.NodeIPs[:i], func(other netip.Addr) bool { return other.Is4() == ip.Is4() }) {
			in.Invalid("--node-ip", ip.String(), "must be the only one of its family")
		}
	}
	f.NodeLabels, f.NodeIPs = maps.Clone(f.NodeLabels), slices.Clone(f.NodeIPs)
	return f
}

// commandLine returns all flags with the values that the agent uses: the defaults of some depend on other flags.
func commandLine(f Flags) map[string]string {
	all := map[string]string{
		"root-dir": f.RootDir, "run-dir": f.RunDir, "cert-dir": f.CertDir, "hostname-override": f.HostnameOverride,
		"kubeconfig": f.Kubeconfig, "bootstrap-kubeconfig": f.BootstrapKubeconfig, "cloud-provider": f.CloudProvider,
	}
	for name, value := range f.CommandLine {
		if all[name] == "" {
			all[name] = value
		}
	}
	return all
}

// readNodeName follows the kubelet's rule: the flag or the host's name, in lower case.
func readNodeName(in *input, f Flags, h host) string {
	name := strings.ToLower(strings.TrimSpace(cmp.Or(f.HostnameOverride, h.name)))
	for _, m := range validation.IsDNS1123Subdomain(name) {
		if f.HostnameOverride == "" {
			m = "the host's name is not a valid node name, set --hostname-override: " + m
		}
		in.Invalid("--hostname-override", name, "%s", m)
	}
	return name
}

func readRuntime(in *input, f Flags, h host) Runtime {
	kc := in.kc
	r := Runtime{
		Endpoint:       kc.ContainerRuntimeEndpoint,
		RequestTimeout: in.Duration("runtimeRequestTimeout", kc.RuntimeRequestTimeout),
		PodCIDRs:       readPodCIDRs(in),
		CgroupDriver:   kc.CgroupDriver,
		ParallelPulls:  readParallelPulls(in),
		Embedded:       f.Embedded,
		Cgroups:        f.RuntimeCgroups,
	}
	if e := strings.TrimPrefix(r.Endpoint, DockerRuntime); e != "" && e != EmbeddedRuntime {
		in.Socket("containerRuntimeEndpoint", e)
	}
	// A cleanup command has no --kubeconfig: the kubelet's root means that the node belongs to a cluster.
	if f.Kubeconfig != "" || f.Apart && f.RootDir == JoinedRootDir {
		r.KubeletsDefault = cmp.Or(h.runtime, kubeletsRuntime)
		in.Socket("$CONTAINER_RUNTIME_ENDPOINT", r.KubeletsDefault)
	}
	if e := kc.ImageServiceEndpoint; e != "" && e != r.Endpoint {
		in.Invalid("imageServiceEndpoint", e,
			"must be containerRuntimeEndpoint (%q), or left out: the runtime that runs containers also pulls "+
				"their images", r.Endpoint)
	}
	if r.CgroupDriver != "cgroupfs" && r.CgroupDriver != "systemd" {
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("cgroupDriver"), r.CgroupDriver,
			[]string{"cgroupfs", "systemd"})})
	}
	return r
}

// readParallelPulls combines serializeImagePulls and maxParallelImagePulls.
func readParallelPulls(in *input) int {
	most, serial := in.kc.MaxParallelImagePulls, *in.kc.SerializeImagePulls
	switch {
	case most != nil && *most < 1:
		in.Invalid("maxParallelImagePulls", *most, "must be at least 1")
	case most != nil && *most > 1 && serial:
		in.Invalid("maxParallelImagePulls", *most, "must be 1, or left out, with serializeImagePulls: true")
	case serial:
	case most != nil:
		return int(*most)
	default:
		return 0
	}
	return 1
}

func readPodCIDRs(in *input) []netip.Prefix {
	var all []netip.Prefix
	for text := range strings.SplitSeq(in.kc.PodCIDR, ",") {
		text = strings.TrimSpace(text)
		if text == "" && in.kc.PodCIDR == "" {
			return nil
		}
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			in.Invalid("podCIDR", text, "must be a range such as 10.85.0.0/16 or 10.85.0.0/16,fd00:85::/64")
		case p != p.Masked():
			in.Invalid("podCIDR", text, "must be the first address of the range, %s", p.Masked())
		case slices.ContainsFunc(all, func(other netip.Prefix) bool { return other.Addr().Is4() == p.Addr().Is4() }):
			in.Invalid("podCIDR", text, "must be the only range of its family")
		}
		all = append(all, p)
	}
	return all
}

func readNode(in *input, f Flags) Node {
	kc := in.kc
	n := Node{
		IPs:            f.NodeIPs,
		Labels:         f.NodeLabels,
		MaxPods:        kc.MaxPods,
		PodsPerCore:    kc.PodsPerCore,
		KubeReserved:   readReserved(in, "kubeReserved", kc.KubeReserved),
		SystemReserved: readReserved(in, "systemReserved", kc.SystemReserved),
		CgroupRoot:     cmp.Or(kc.CgroupRoot, "/"),
		Taints:         slices.Clone(kc.RegisterWithTaints),
		OpenLoopback:   !*kc.MakeIPTablesUtilChains,

		Storage: storage.Mode{Off: !*kc.LocalStorageCapacityIsolation, Quotas: f.Disk.EmptyDirQuota,
			Walk: gate.Read(kc).Storage.Quotas},
	}
	if n.Storage.Quotas && n.Storage.Walk {
		in.Invalid("--empty-dir-quota", true,
			"needs project quotas, which the feature gate LocalStorageCapacityIsolationFSQuotaMonitoring: false turns "+
				"off")
	}
	in.Add(taintFaults(kc.RegisterWithTaints))
	n.Pinning = readPinning(in, &n)
	n.Enforce = readEnforcement(in)
	policy, faults := eviction.ReadPolicy(kc, n.Enforce.Pods)
	n.Eviction = policy
	in.Add(faults)
	if n.MaxPods < 0 {
		in.Invalid("maxPods", n.MaxPods, "must not be negative; 0 stands for the default")
	}
	if n.PodsPerCore < 0 {
		in.Invalid("podsPerCore", n.PodsPerCore, "must not be negative; 0 sets no bound")
	}
	in.Absolute("cgroupRoot", n.CgroupRoot)
	if !*kc.CgroupsPerQOS {
		in.Invalid("cgroupsPerQOS", false, "must be true: pods are always in cgroups by their QoS class")
	}
	return n
}

func readReserved(in *input, path string, amounts map[string]string) corev1.ResourceList {
	allowed := []string{"cpu", "memory", "ephemeral-storage", "pid"}
	list := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		key := field.NewPath(path).Key(name)
		q, err := quantity.Parse(amounts[name])
		switch {
		case !slices.Contains(allowed, name):
			in.Add(field.ErrorList{field.NotSupported(field.NewPath(path), name, allowed)})
		case err != nil || q.Sign() < 0:
			in.Add(field.ErrorList{field.Invalid(key, amounts[name],
				"must be a quantity of at least 0, such as 500m or 1Gi")})
		default:
			list[corev1.ResourceName(name)] = q
		}
	}
	return list
}

func readPods(in *input) Pods {
	kc := in.kc
	p := Pods{
		LogsDir:              filepath.Clean(kc.PodLogsDir),
		Logs:                 readLogs(in),
		ClusterDNS:           readClusterDNS(in),
		ClusterDomain:        kc.ClusterDomain,
		ResolvConf:           *kc.ResolverConfig,
		CPUCFSQuota:          *kc.CPUCFSQuota,
		CPUCFSQuotaPeriod:    kc.CPUCFSQuotaPeriod.Duration,
		PidsLimit:            *kc.PodPidsLimit,
		SeccompDefault:       *kc.SeccompDefault,
		MaxRestartBackoff:    kc.CrashLoopBackOff.MaxContainerRestartPeriod.Duration,
		SingleProcessOOMKill: kc.SingleProcessOOMKill,
		AllowedUnsafeSysctls: readUnsafeSysctls(in),
		UsernsIDs:            readUsernsIDs(in),
		FlexVolumes:          kc.VolumePluginDir,
	}
	in.Absolute("podLogsDir", p.LogsDir)
	in.Absolute("resolvConf", p.ResolvConf)
	if p.ClusterDomain != "" {
		in.Rules("clusterDomain", p.ClusterDomain,
			validation.IsDNS1123Subdomain(strings.TrimSuffix(p.ClusterDomain, ".")))
	}
	if d := p.CPUCFSQuotaPeriod; d < time.Millisecond || d > time.Second {
		in.Invalid("cpuCFSQuotaPeriod", d.String(), "must be between 1ms and 1s")
	}
	if d := p.MaxRestartBackoff; d < time.Second || d > maxRestartPeriod {
		in.Invalid("crashLoopBackOff.maxContainerRestartPeriod", d.String(), "must be between 1s and 300s")
	}
	switch kc.MemorySwap.SwapBehavior {
	case "", "NoSwap":
	case "LimitedSwap":
		p.LimitedSwap = true
	default:
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("memorySwap.swapBehavior"), kc.MemorySwap.SwapBehavior,
			[]string{"NoSwap", "LimitedSwap"})})
	}
	return p
}

// readLogs limits logs as the kubelet does. A negative size sets no limit.
func readLogs(in *input) Logs {
	kc := in.kc
	l := Logs{MaxFiles: int(*kc.ContainerLogMaxFiles), Workers: int(*kc.ContainerLogMaxWorkers)}
	size, err := quantity.Parse(kc.ContainerLogMaxSize)
	if l.MaxSize = size.Value(); err != nil || l.MaxSize == 0 {
		in.Invalid("containerLogMaxSize", kc.ContainerLogMaxSize,
			"must be a quantity such as 10Mi; one below 0 turns the rotation of logs off")
	}
	if l.MaxFiles < 2 {
		in.Invalid("containerLogMaxFiles", l.MaxFiles,
			"must be at least 2: the file that is written to and a rotated one")
	}
	if l.Workers < 1 {
		in.Invalid("containerLogMaxWorkers", l.Workers, "must be at least 1")
	}
	return l
}

func readClusterDNS(in *input) []netip.Addr {
	var all []netip.Addr
	for i, text := range in.kc.ClusterDNS {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			in.Invalid(fmt.Sprintf("clusterDNS[%d]", i), text, "must be an IP address")
			continue
		}
		all = append(all, ip)
	}
	return all
}

// taintFaults returns the errors that the API server would report for a node's taints.
func taintFaults(taints []corev1.Taint) (errs field.ErrorList) {
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
		corev1.TaintEffectNoExecute}
	for i, t := range taints {
		at := field.NewPath("registerWithTaints").Index(i)
		for _, msg := range validation.IsQualifiedName(t.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), t.Key, msg))
		}
		for _, msg := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
		}
		if !slices.Contains(effects, t.Effect) {
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, effects))
		}
		if slices.ContainsFunc(taints[:i], func(o corev1.Taint) bool {
			return o.Key == t.Key && o.Effect == t.Effect
		}) {
			errs = append(errs, field.Duplicate(at, t.Key+":"+string(t.Effect)))
		}
	}
	return errs
}

// readUnsafeSysctls accepts names of namespaced sysctls, and prefixes of such names that end in *.
func readUnsafeSysctls(in *input) []string {
	groups := []string{"kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "net."}
	for i, name := range in.kc.AllowedUnsafeSysctls {
		if !slices.ContainsFunc(groups, func(g string) bool { return strings.HasPrefix(name, g) }) ||
			strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			in.Invalid(fmt.Sprintf("allowedUnsafeSysctls[%d]", i), name,
				"must be kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.* or a part of these; * can only "+
					"be at the end")
		}
	}
	return slices.Clone(in.kc.AllowedUnsafeSysctls)
}

// readUsernsIDs requires a multiple of 65536 that allows more than one pod, as the kubelet does.
func readUsernsIDs(in *input) uint32 {
	const unit = 1 << 16
	if in.kc.UserNamespaces == nil || in.kc.UserNamespaces.IDsPerPod == nil {
		return unit
	}
	n := *in.kc.UserNamespaces.IDsPerPod
	if n < unit || n%unit != 0 || n >= 1<<31 {
		in.Invalid("userNamespaces.idsPerPod", n, "must be a multiple of 65536 below 2147483648")
		return unit
	}
	return uint32(n)
}

func readTracing(in *input) *Tracing {
	t := in.kc.Tracing
	if t == nil {
		return nil
	}
	in.Within("tracing.samplingRatePerMillion", int64(ptr.Deref(t.SamplingRatePerMillion, 0)), 0, 1_000_000)
	return &Tracing{Endpoint: ptr.Deref(t.Endpoint, defaultOTLP),
		SamplingRatePerMillion: ptr.Deref(t.SamplingRatePerMillion, 0)}
}

// checkMachine refuses a machine that the configuration does not allow.
func checkMachine(in *input, h host) {
	const next = "or write %[1]s: false into the file of --config"
	if *in.kc.FailSwapOn && h.swap {
		in.Invalid("failSwapOn", true, "swap is on: turn it off (swapoff -a), "+next, "failSwapOn")
	}
	if *in.kc.FailCgroupV1 && h.cgroupV1 {
		in.Invalid("failCgroupV1", true,
			"this machine has cgroup v1: boot it with systemd.unified_cgroup_hierarchy=1, "+next, "failCgroupV1")
	}
	if in.kc.ProtectKernelDefaults && len(h.kernel) > 0 {
		in.Invalid("protectKernelDefaults", true, "%[2]s: set them (sysctl -w, and in /etc/sysctl.d), "+next,
			"protectKernelDefaults", strings.Join(h.kernel, ", "))
	}
}
