package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

const (
	defaultOTLP = "localhost:4317"
	// maxRestartPeriod bounds crashLoopBackOff.maxContainerRestartPeriod.
	maxRestartPeriod = 300 * time.Second
	// maxSocketPath is sun_path without its final zero (unix(7)).
	maxSocketPath = 107
)

// host holds what Load has read from the machine.
type host struct {
	name     string
	swap     bool // whether any swap is in use
	cgroupV1 bool
	kernel   []string // parameters that differ from the kubelet's, see kernel.Wrong
	runtime  string   // $CONTAINER_RUNTIME_ENDPOINT
}

// builder makes a Config and collects everything wrong on the way.
type builder struct {
	// kc has all defaults, files only what files say.
	kc, files *v1beta1.KubeletConfiguration
	errs      field.ErrorList
}

func (b *builder) invalid(path string, value any, format string, args ...any) {
	b.errs = append(b.errs, field.Invalid(field.NewPath(path), value, fmt.Sprintf(format, args...)))
}

func (b *builder) add(errs field.ErrorList) { b.errs = append(b.errs, errs...) }

// rules adds the messages of a validation rule of k8s.io/apimachinery.
func (b *builder) rules(path string, value any, messages []string) {
	for _, m := range messages {
		b.invalid(path, value, "%s", m)
	}
}

func (b *builder) within(path string, value, low, high int64) {
	if value < low || value > high {
		b.invalid(path, value, "must be between %d and %d", low, high)
	}
}

func (b *builder) duration(path string, d metav1.Duration) time.Duration {
	if d.Duration < 0 {
		b.invalid(path, d.Duration.String(), "must be more than 0s; leave it out for the default")
	}
	return d.Duration
}

func (b *builder) absolute(path, value string) {
	if value != "" && !filepath.IsAbs(value) {
		b.invalid(path, value, "must be an absolute path")
	}
}

// socket requires unix:///path, short enough for the kernel.
func (b *builder) socket(path, value string) {
	file, ok := strings.CutPrefix(value, "unix://")
	if !ok || !filepath.IsAbs(file) {
		b.invalid(path, value, "must be unix:// and an absolute path, such as unix:///run/containerd/containerd.sock")
		return
	}
	b.socketPath(path, file)
}

func (b *builder) socketPath(path, file string) {
	if len(file) > maxSocketPath {
		b.invalid(path, file, "must be at most %d bytes long, is %d: choose a shorter path", maxSocketPath, len(file))
	}
}

// build fills in defaults and checks everything. Paths in flags must be absolute. If there are errors, the Config is
// incomplete.
func build(f Flags, files *v1beta1.KubeletConfiguration, h host) (*Config, field.ErrorList) {
	kc := complete(files, f)
	b := &builder{kc: kc, files: files}
	c := &Config{Flags: b.flags(f)}
	c.Kubelet = kc
	c.NodeName = b.nodeName(f, h)
	c.Sources = b.sources()
	c.Runtime = b.runtime(c.Flags, h)
	c.Images = b.images()
	c.Node = b.node()
	c.Pods = b.pods()
	c.Tracing = b.tracing()
	if !f.Apart {
		c.Cluster, c.Offline = joiner{b}.cluster(c.Flags), joiner{b}.offline(c.Flags)
		c.Server = listener{b}.server(c.Flags)
		c.Shutdown = joiner{b}.shutdown()
		b.machine(h)
	}
	c.Dead = process{b}.dead(f.Dead)
	process{b}.lock(f.Lock)
	if kc.RunOnce {
		b.invalid("runOnce", true, `has been removed: use "berth run", which runs pods and ends with them`)
	}
	return c, b.errs
}

// SocketOf returns the path of the agent's socket for a root directory. It is in /run/berth for the two default
// roots, and berth.sock in any other root. An empty root is a default root.
func SocketOf(root string) string {
	if root == "" || slices.Contains([]string{DefaultRootDir, JoinedRootDir}, filepath.Clean(root)) {
		return "/run/berth/berth.sock"
	}
	return filepath.Join(root, "berth.sock")
}

// rootDir returns the root directory of the flags, or the default one.
func rootDir(f Flags) string {
	root := DefaultRootDir
	if f.Kubeconfig != "" {
		root = JoinedRootDir
	}
	return filepath.Clean(cmp.Or(f.RootDir, root))
}

func (b *builder) flags(f Flags) Flags {
	f.RootDir = rootDir(f)
	runDir := filepath.Join(f.RootDir, "run")
	if f.RootDir == DefaultRootDir || f.RootDir == JoinedRootDir {
		runDir = "/run/berth"
	}
	f.RunDir, f.Socket = cmp.Or(f.RunDir, runDir), cmp.Or(f.Socket, SocketOf(f.RootDir))
	f.CertDir = certDir(f)
	b.socketPath("--socket", f.Socket)
	b.absolute("--runtime-cgroups", f.RuntimeCgroups)
	f.Embedded = process{b}.embedded(f.Embedded)
	if (f.Providers.Config == "") != (f.Providers.BinDir == "") {
		b.invalid("--image-credential-provider-config", f.Providers.Config,
			"must be given together with --image-credential-provider-bin-dir, or not at all")
	}
	b.add(metavalidation.ValidateLabels(f.NodeLabels, field.NewPath("--node-labels")))
	for i, ip := range f.NodeIPs {
		if !ip.IsValid() || ip.IsMulticast() {
			b.invalid("--node-ip", ip.String(),
				"must be an address of this machine, or 0.0.0.0 or :: for the default one of that family")
		}
		if slices.ContainsFunc(f.NodeIPs[:i], func(other netip.Addr) bool { return other.Is4() == ip.Is4() }) {
			b.invalid("--node-ip", ip.String(), "must be the only one of its family")
		}
	}
	f.NodeLabels, f.NodeIPs = maps.Clone(f.NodeLabels), slices.Clone(f.NodeIPs)
	return f
}

// readNodeName follows the kubelet's rule: the flag or the host's name, in lower case.
func (b *builder) nodeName(f Flags, h host) string {
	name := strings.ToLower(strings.TrimSpace(cmp.Or(f.HostnameOverride, h.name)))
	for _, m := range validation.IsDNS1123Subdomain(name) {
		if f.HostnameOverride == "" {
			m = "the host's name is not a valid node name, set --hostname-override: " + m
		}
		b.invalid("--hostname-override", name, "%s", m)
	}
	return name
}

func (b *builder) sources() Sources {
	kc := b.kc
	s := Sources{
		StaticPodPath:      kc.StaticPodPath,
		StaticPodURL:       kc.StaticPodURL,
		FileCheckFrequency: b.duration("fileCheckFrequency", kc.FileCheckFrequency),
		HTTPCheckFrequency: b.duration("httpCheckFrequency", kc.HTTPCheckFrequency),
	}
	b.absolute("staticPodPath", s.StaticPodPath)
	if s.StaticPodURL != "" {
		if u, err := url.Parse(s.StaticPodURL); err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			u.Host == "" {
			b.invalid("staticPodURL", s.StaticPodURL, "must be an http or https URL")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kc.StaticPodURLHeader)) {
		b.rules("staticPodURLHeader", name, validation.IsHTTPHeaderName(name))
		if s.StaticPodURLHeader == nil {
			s.StaticPodURLHeader = map[string][]string{}
		}
		s.StaticPodURLHeader[textproto.CanonicalMIMEHeaderKey(name)] = slices.Clone(kc.StaticPodURLHeader[name])
	}
	return s
}

func (b *builder) runtime(f Flags, h host) Runtime {
	kc := b.kc
	r := Runtime{
		Endpoint:       kc.ContainerRuntimeEndpoint,
		RequestTimeout: b.duration("runtimeRequestTimeout", kc.RuntimeRequestTimeout),
		PodCIDRs:       b.podCIDRs(),
		CgroupDriver:   kc.CgroupDriver,
		ParallelPulls:  b.parallelPulls(),
	}
	if r.Endpoint != "" && r.Endpoint != EmbeddedRuntime {
		b.socket("containerRuntimeEndpoint", r.Endpoint)
	}
	// A cleanup command has no --kubeconfig: the kubelet's root means that the node belongs to a cluster.
	if f.Kubeconfig != "" || f.Apart && f.RootDir == JoinedRootDir {
		r.KubeletsDefault = cmp.Or(h.runtime, kubeletsRuntime)
		b.socket("$CONTAINER_RUNTIME_ENDPOINT", r.KubeletsDefault)
	}
	if e := kc.ImageServiceEndpoint; e != "" && e != r.Endpoint {
		b.invalid("imageServiceEndpoint", e,
			"must be containerRuntimeEndpoint (%q), or left out: the runtime that runs containers also pulls "+
				"their images", r.Endpoint)
	}
	if r.CgroupDriver != "cgroupfs" && r.CgroupDriver != "systemd" {
		b.add(field.ErrorList{field.NotSupported(field.NewPath("cgroupDriver"), r.CgroupDriver,
			[]string{"cgroupfs", "systemd"})})
	}
	return r
}

// readParallelPulls combines serializeImagePulls and maxParallelImagePulls.
func (b *builder) parallelPulls() int {
	most, serial := b.kc.MaxParallelImagePulls, *b.kc.SerializeImagePulls
	switch {
	case most != nil && *most < 1:
		b.invalid("maxParallelImagePulls", *most, "must be at least 1")
	case most != nil && *most > 1 && serial:
		b.invalid("maxParallelImagePulls", *most, "must be 1, or left out, with serializeImagePulls: true")
	case serial:
	case most != nil:
		return int(*most)
	default:
		return 0
	}
	return 1
}

func (b *builder) podCIDRs() []netip.Prefix {
	var all []netip.Prefix
	for text := range strings.SplitSeq(b.kc.PodCIDR, ",") {
		text = strings.TrimSpace(text)
		if text == "" && b.kc.PodCIDR == "" {
			return nil
		}
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			b.invalid("podCIDR", text, "must be a range such as 10.85.0.0/16 or 10.85.0.0/16,fd00:85::/64")
		case p != p.Masked():
			b.invalid("podCIDR", text, "must be the first address of the range, %s", p.Masked())
		case slices.ContainsFunc(all, func(other netip.Prefix) bool { return other.Addr().Is4() == p.Addr().Is4() }):
			b.invalid("podCIDR", text, "must be the only range of its family")
		}
		all = append(all, p)
	}
	return all
}

func (b *builder) node() Node {
	kc := b.kc
	n := Node{
		MaxPods:        kc.MaxPods,
		PodsPerCore:    kc.PodsPerCore,
		KubeReserved:   b.reserved("kubeReserved", kc.KubeReserved),
		SystemReserved: b.reserved("systemReserved", kc.SystemReserved),
		EvictionHard:   b.evictionHard(),
		CgroupRoot:     cmp.Or(kc.CgroupRoot, "/"),
		Taints:         slices.Clone(kc.RegisterWithTaints),
	}
	b.add(taintFaults(kc.RegisterWithTaints))
	n.Pinning = pinner{b}.pinning(&n)
	n.Enforce = enforcer{b}.enforcement()
	if n.MaxPods < 0 {
		b.invalid("maxPods", n.MaxPods, "must not be negative; 0 stands for the default")
	}
	if n.PodsPerCore < 0 {
		b.invalid("podsPerCore", n.PodsPerCore, "must not be negative; 0 sets no bound")
	}
	b.absolute("cgroupRoot", n.CgroupRoot)
	if !*kc.CgroupsPerQOS {
		b.invalid("cgroupsPerQOS", false, "must be true: pods are always in cgroups by their QoS class")
	}
	return n
}

func (b *builder) reserved(path string, amounts map[string]string) corev1.ResourceList {
	allowed := []string{"cpu", "memory", "ephemeral-storage", "pid"}
	list := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		key := field.NewPath(path).Key(name)
		q, err := resource.ParseQuantity(amounts[name])
		switch {
		case !slices.Contains(allowed, name):
			b.add(field.ErrorList{field.NotSupported(field.NewPath(path), name, allowed)})
		case err != nil || q.Sign() < 0:
			b.add(field.ErrorList{field.Invalid(key, amounts[name],
				"must be a quantity of at least 0, such as 500m or 1Gi")})
		default:
			list[corev1.ResourceName(name)] = q
		}
	}
	return list
}

// readEvictionHard returns the thresholds by signal.
func (b *builder) evictionHard() map[string]string {
	known := []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available",
		"imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available"}
	for _, signal := range slices.Sorted(maps.Keys(b.kc.EvictionHard)) {
		value := b.kc.EvictionHard[signal]
		if !slices.Contains(known, signal) {
			b.add(field.ErrorList{field.NotSupported(field.NewPath("evictionHard"), signal, known)})
		} else if !isThreshold(value) {
			b.add(field.ErrorList{field.Invalid(field.NewPath("evictionHard").Key(signal), value,
				"must be a quantity of at least 0 or a percentage between 0% and 100%")})
		}
	}
	return maps.Clone(b.kc.EvictionHard)
}

func isThreshold(text string) bool {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		return err == nil && p >= 0 && p <= 100
	}
	q, err := resource.ParseQuantity(text)
	return err == nil && q.Sign() >= 0
}

func (b *builder) pods() Pods {
	kc := b.kc
	p := Pods{
		LogsDir:              filepath.Clean(kc.PodLogsDir),
		Logs:                 b.logs(),
		ClusterDNS:           b.clusterDNS(),
		ClusterDomain:        kc.ClusterDomain,
		ResolvConf:           *kc.ResolverConfig,
		CPUCFSQuota:          *kc.CPUCFSQuota,
		CPUCFSQuotaPeriod:    kc.CPUCFSQuotaPeriod.Duration,
		PidsLimit:            *kc.PodPidsLimit,
		SeccompDefault:       *kc.SeccompDefault,
		MaxRestartBackoff:    kc.CrashLoopBackOff.MaxContainerRestartPeriod.Duration,
		SingleProcessOOMKill: kc.SingleProcessOOMKill,
		AllowedUnsafeSysctls: b.unsafeSysctls(),
		UsernsIDs:            b.usernsIDs(),
	}
	b.absolute("podLogsDir", p.LogsDir)
	b.absolute("resolvConf", p.ResolvConf)
	if p.ClusterDomain != "" {
		b.rules("clusterDomain", p.ClusterDomain,
			validation.IsDNS1123Subdomain(strings.TrimSuffix(p.ClusterDomain, ".")))
	}
	if d := p.CPUCFSQuotaPeriod; d < time.Millisecond || d > time.Second {
		b.invalid("cpuCFSQuotaPeriod", d.String(), "must be between 1ms and 1s")
	}
	if d := p.MaxRestartBackoff; d < time.Second || d > maxRestartPeriod {
		b.invalid("crashLoopBackOff.maxContainerRestartPeriod", d.String(), "must be between 1s and 300s")
	}
	switch kc.MemorySwap.SwapBehavior {
	case "", "NoSwap":
	case "LimitedSwap":
		p.LimitedSwap = true
	default:
		b.add(field.ErrorList{field.NotSupported(field.NewPath("memorySwap.swapBehavior"), kc.MemorySwap.SwapBehavior,
			[]string{"NoSwap", "LimitedSwap"})})
	}
	return p
}

// readLogs limits logs as the kubelet does. A negative size sets no limit.
func (b *builder) logs() Logs {
	kc := b.kc
	l := Logs{MaxFiles: int(*kc.ContainerLogMaxFiles), Workers: int(*kc.ContainerLogMaxWorkers)}
	size, err := resource.ParseQuantity(kc.ContainerLogMaxSize)
	if l.MaxSize = size.Value(); err != nil || l.MaxSize == 0 {
		b.invalid("containerLogMaxSize", kc.ContainerLogMaxSize,
			"must be a quantity such as 10Mi; one below 0 turns the rotation of logs off")
	}
	if l.MaxFiles < 2 {
		b.invalid("containerLogMaxFiles", l.MaxFiles,
			"must be at least 2: the file that is written to and a rotated one")
	}
	if l.Workers < 1 {
		b.invalid("containerLogMaxWorkers", l.Workers, "must be at least 1")
	}
	return l
}

func (b *builder) clusterDNS() []netip.Addr {
	var all []netip.Addr
	for i, text := range b.kc.ClusterDNS {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			b.invalid(fmt.Sprintf("clusterDNS[%d]", i), text, "must be an IP address")
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
func (b *builder) unsafeSysctls() []string {
	groups := []string{"kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "net."}
	for i, name := range b.kc.AllowedUnsafeSysctls {
		if !slices.ContainsFunc(groups, func(g string) bool { return strings.HasPrefix(name, g) }) ||
			strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			b.invalid(fmt.Sprintf("allowedUnsafeSysctls[%d]", i), name,
				"must be kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.* or a part of these; * can only "+
					"be at the end")
		}
	}
	return slices.Clone(b.kc.AllowedUnsafeSysctls)
}

// readUsernsIDs requires a multiple of 65536 that allows more than one pod, as the kubelet does.
func (b *builder) usernsIDs() uint32 {
	const unit = 1 << 16
	if b.kc.UserNamespaces == nil || b.kc.UserNamespaces.IDsPerPod == nil {
		return unit
	}
	n := *b.kc.UserNamespaces.IDsPerPod
	if n < unit || n%unit != 0 || n >= 1<<31 {
		b.invalid("userNamespaces.idsPerPod", n, "must be a multiple of 65536 below 2147483648")
		return unit
	}
	return uint32(n)
}

func (b *builder) tracing() *Tracing {
	t := b.kc.Tracing
	if t == nil {
		return nil
	}
	b.within("tracing.samplingRatePerMillion", int64(or(t.SamplingRatePerMillion, 0)), 0, 1_000_000)
	return &Tracing{Endpoint: or(t.Endpoint, defaultOTLP), SamplingRatePerMillion: or(t.SamplingRatePerMillion, 0)}
}

// checkMachine refuses a machine that the configuration does not allow.
func (b *builder) machine(h host) {
	const next = "or write %[1]s: false into the file of --config"
	if *b.kc.FailSwapOn && h.swap {
		b.invalid("failSwapOn", true, "swap is on: turn it off (swapoff -a), "+next, "failSwapOn")
	}
	if *b.kc.FailCgroupV1 && h.cgroupV1 {
		b.invalid("failCgroupV1", true,
			"this machine has cgroup v1: boot it with systemd.unified_cgroup_hierarchy=1, "+next, "failCgroupV1")
	}
	if b.kc.ProtectKernelDefaults && len(h.kernel) > 0 {
		b.invalid("protectKernelDefaults", true, "%[2]s: set them (sysctl -w, and in /etc/sysctl.d), "+next,
			"protectKernelDefaults", strings.Join(h.kernel, ", "))
	}
}

// or returns the value that p points to, or the default for nil.
func or[T any](p *T, byDefault T) T {
	if p == nil {
		return byDefault
	}
	return *p
}

// warnings returns a Warning for every set field that has no effect, or less effect than in the kubelet.
func warnings(f Flags, kc *v1beta1.KubeletConfiguration, origin map[string]string) []Warning {
	var all []Warning
	some, none := limited(), map[string]string{}
	reasons := []map[string][]string{withoutEffect()}
	if f.Kubeconfig == "" {
		reasons = append(reasons, standalone())
		maps.Copy(some, limitedStandalone())
	}
	if !serves(kc, f.Kubeconfig != "") {
		reasons = append(reasons, withoutServer())
	}
	for _, paths := range reasons {
		for text, paths := range paths {
			for _, path := range paths {
				none[path] = text
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(origin)) {
		if path == "featureGates" {
			for _, gate := range slices.Sorted(maps.Keys(kc.FeatureGates)) {
				if slices.Contains(gates(), gate) {
					continue
				}
				all = append(all,
					Warning{Origin: origin[path], Field: "featureGates." + gate,
						Text: "has no effect: there is no such feature gate here"})
			}
			continue
		}
		if text, ok := some[path]; ok {
			all = append(all, Warning{Origin: origin[path], Field: path, Text: text})
		}
		if text, ok := none[path]; ok {
			all = append(all, Warning{Origin: origin[path], Field: path, Text: "has no effect: " + text})
		}
	}
	if len(kc.ReservedMemory) > 0 && kc.MemoryManagerPolicy != "Static" {
		all = append(all,
			Warning{Origin: origin["reservedMemory"], Field: "reservedMemory",
				Text: "reserves nothing unless memoryManagerPolicy is Static"})
	}
	all = append(all, weakTLS(kc, origin)...)
	if t := kc.Tracing; t != nil && or(t.SamplingRatePerMillion, 0) == 0 {
		all = append(all, Warning{
			Origin: cmp.Or(origin["tracing.endpoint"], origin["tracing.samplingRatePerMillion"]),
			Field:  "tracing.samplingRatePerMillion",
			Text:   "is 0: no trace is exported; 1000000 exports all",
		})
	}
	return all
}
