package config

import (
	"net/http"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
)

const (
	// DefaultRootDir is where a standalone agent keeps its state unless --root-dir
	// says otherwise.
	DefaultRootDir = "/var/lib/berth"
	// JoinedRootDir is the same for an agent of a cluster: the kubelet's, so that
	// either takes over from the other.
	JoinedRootDir = "/var/lib/kubelet"
	// EmbeddedRuntime is the containerRuntimeEndpoint of the runtime that an agent
	// carries.
	EmbeddedRuntime = "embedded"
	// kubeletsRuntime is the containerRuntimeEndpoint of a kubelet that is told none.
	kubeletsRuntime = "unix:///run/containerd/containerd.sock"
)

// Flags are the settings that KubeletConfiguration does not have. Zero values
// stand for the defaults.
type Flags struct {
	// ConfigFile and ConfigDir hold the KubeletConfiguration and its drop-ins.
	ConfigFile, ConfigDir string
	// RootDir holds what outlives a reboot. Default DefaultRootDir, or
	// JoinedRootDir with Kubeconfig.
	RootDir string
	// RunDir holds sockets and mounts. Default /run/berth, or RootDir/run for
	// another root than the two defaults.
	RunDir string
	// HostnameOverride is the node's name. Default: the host's, in lower case.
	HostnameOverride string
	// NodeIPs are the node's addresses, at most one of each family; one that is
	// unspecified stands for the default one.
	NodeIPs []netip.Addr
	// NodeLabels are added to the node's own.
	NodeLabels map[string]string
	// Socket of the local API. Default berth.sock in /run/berth, or in another root.
	Socket string
	// Providers know the credentials of registries.
	Providers ProviderFlags
	Embedded  EmbeddedFlags
	// Kubeconfig makes the node one of its cluster; empty: standalone.
	// BootstrapKubeconfig has the right to ask for the first client certificate.
	Kubeconfig, BootstrapKubeconfig string
	// CertDir has the certificates that the agent asks for or makes. Default
	// RootDir/pki.
	CertDir string
	// CloudProvider is empty or external.
	CloudProvider string
	Offline       OfflineFlags
	Lock          LockFlags
	Dead          DeadFlags
	// Apart leaves out what the node is to a cluster and what it serves: for
	// commands that only take away what is on the machine.
	Apart bool
	// CommandLine is what all flags were set to, by name, for who looks at the agent.
	CommandLine map[string]string
	// RuntimeCgroups is the cgroup that /stats/summary tells of as the runtime's;
	// empty: that of the process that listens on the runtime's socket.
	RuntimeCgroups string
}

// ProviderFlags are --image-credential-provider-config and -bin-dir: a
// CredentialProviderConfig, or a directory of them, and the directory of their
// programs. Both or none.
type ProviderFlags struct{ Config, BinDir string }

// EmbeddedFlags are about the runtime that the agent carries, and are refused with
// another one.
type EmbeddedFlags struct {
	// CRIListen serves it there too: unix:///path.
	CRIListen string
	// PodNetwork is PodNetworkAuto (default) or PodNetworkCNI.
	PodNetwork string
	// CNIConfDir is where the machine's CNI configuration is. Default: /etc/cni/net.d.
	CNIConfDir string
}

const (
	// PodNetworkAuto is the network of the CNI configuration, and the runtime's own
	// while there is none.
	PodNetworkAuto = "auto"
	// PodNetworkCNI is that of the CNI configuration alone: without one the node is not ready.
	PodNetworkCNI = "cni"
)

// Given names a flag that says something; empty: none does.
func (f EmbeddedFlags) Given() string {
	switch {
	case f.CRIListen != "":
		return "--cri-listen"
	case f.PodNetwork == PodNetworkCNI:
		return "--pod-network"
	case f.CNIConfDir != "":
		return "--cni-conf-dir"
	}
	return ""
}

// OfflineFlags say what becomes of the record of accepted pods, of which
// KubeletConfiguration knows nothing. See Offline.
type OfflineFlags struct {
	Off     bool
	MaxAge  time.Duration
	KeyFile string
}

// LockFlags make an agent one of several processes of which one works.
type LockFlags struct {
	// File is locked before anything is done; empty: none.
	File string
	// Yield ends the agent when another process opens File, or removes it
	// (--exit-on-lock-contention).
	Yield bool
}

// DeadFlags say how many dead containers stay; nil stands for the default. See
// DeadContainers.
type DeadFlags struct {
	MinAge              time.Duration
	PerContainer, Total *int
}

// Config is everything an agent is told. It is complete, valid, and never
// changed: Load is its only maker.
type Config struct {
	Flags
	NodeName string

	Sources  Sources
	Runtime  Runtime
	Images   Images
	Node     Node
	Pods     Pods
	Tracing  *Tracing // nil: no export
	Cluster  *Cluster // nil: standalone
	Offline  *Offline // nil: no record; always with Cluster nil
	Server   Server
	Shutdown Shutdown
	Dead     DeadContainers
	// Kubelet is what the files say with the defaults of the rest, for those who
	// ask the agent for its configuration.
	Kubelet *v1beta1.KubeletConfiguration
}

// DeadContainers bounds the dead instances of containers of live pods. The newest
// instance of each container stays in any case.
type DeadContainers struct {
	// MinAge is for how long after its creation one stays. Default 0.
	MinAge time.Duration
	// PerContainer is how many stay of one container, default 1; Total how many on
	// the node, default -1. Less than 0: no bound.
	PerContainer, Total int
}

// Sources say where pods come from.
type Sources struct {
	StaticPodPath      string // default RootDir/manifests; with Cluster none, as a kubelet's
	StaticPodURL       string
	StaticPodURLHeader http.Header
	FileCheckFrequency time.Duration // default 20 s
	HTTPCheckFrequency time.Duration // default 20 s
}

// Runtime says what runs containers.
type Runtime struct {
	// Endpoint is unix:///path, EmbeddedRuntime, or empty: package endpoint chooses.
	Endpoint string
	// KubeletsDefault is where a kubelet looks for its runtime when it is told
	// none, or $CONTAINER_RUNTIME_ENDPOINT. Empty without a cluster.
	KubeletsDefault string
	// RequestTimeout is the base of every CRI call's deadline. Default 2 min.
	RequestTimeout time.Duration
	// PodCIDRs are the address ranges of the embedded runtime's network, at
	// most one of each family. Empty: the runtime's own.
	PodCIDRs []netip.Prefix
	// CgroupDriver is used when the runtime does not say: cgroupfs (default) or systemd.
	CgroupDriver string
	// ParallelPulls bounds image pulls at the same time: 1 is
	// serializeImagePulls, 0 no bound.
	ParallelPulls int
}

// Images says how long images stay, and for whom they are.
type Images struct {
	// HighThreshold is at how many percent of the disk unused images are removed,
	// LowThreshold down to how many. Default 85 and 80; 100: never.
	HighThreshold, LowThreshold int
	// MinimumAge is for how long an image stays in any case. Default 2 min.
	MinimumAge time.Duration
	// MaximumAge is for how long an image may be unused. Default 0: for ever.
	MaximumAge time.Duration
	// Verification is imagePullCredentialsVerificationPolicy. Default
	// NeverVerifyPreloadedImages.
	Verification v1beta1.ImagePullCredentialsVerificationPolicy
	// Allowlist is preloadedImagesVerificationAllowlist.
	Allowlist []string
}

// Node says what the machine gives to pods.
type Node struct {
	MaxPods     int32 // default 110
	PodsPerCore int32
	// KubeReserved, SystemReserved and EvictionHard are taken off what pods may
	// request. EvictionHard is by signal: a quantity or a percentage.
	KubeReserved   corev1.ResourceList
	SystemReserved corev1.ResourceList
	EvictionHard   map[string]string
	CgroupRoot     string // default /
	// Taints are registerWithTaints: what pods have to tolerate.
	Taints  []corev1.Taint
	Pinning Pinning
	Enforce Enforcement
}

// Pods says how pods are run.
type Pods struct {
	LogsDir           string // default /var/log/pods
	Logs              Logs
	ClusterDNS        []netip.Addr
	ClusterDomain     string
	ResolvConf        string // default /etc/resolv.conf
	CPUCFSQuota       bool
	CPUCFSQuotaPeriod time.Duration
	PidsLimit         int64 // -1: none
	SeccompDefault    bool
	// MaxRestartBackoff is crashLoopBackOff.maxContainerRestartPeriod. Default 300 s.
	MaxRestartBackoff time.Duration
	// SingleProcessOOMKill as configured; nil: false on cgroup v2.
	SingleProcessOOMKill *bool
	// LimitedSwap is memorySwap.swapBehavior LimitedSwap.
	LimitedSwap bool
	// AllowedUnsafeSysctls are names and prefixes that end in *.
	AllowedUnsafeSysctls []string
	// UsernsIDs is userNamespaces.idsPerPod. Default 65536.
	UsernsIDs uint32
}

// Logs bounds the log of each container instance.
type Logs struct {
	MaxSize  int64 // of one file, in bytes; default 10Mi, less than 0: no bound
	MaxFiles int   // at least 2, default 5
	// Workers is how many files are compressed at the same time. Default 1.
	Workers int
}

// Tracing is the OTLP export of spans.
type Tracing struct {
	Endpoint               string
	SamplingRatePerMillion int32
}
