package config

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/config/embedded"
	"github.com/berth-run/berth/internal/config/gate"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/node/eviction/storage"
)

const (
	// DefaultRootDir is where a standalone agent keeps its state unless --root-dir is set.
	DefaultRootDir = "/var/lib/berth"
	// JoinedRootDir is the default for a node of a cluster. It is the kubelet's directory, so that an agent and a
	// kubelet can replace each other.
	JoinedRootDir = "/var/lib/kubelet"
	// EmbeddedRuntime is the containerRuntimeEndpoint of the runtime inside the agent.
	EmbeddedRuntime = "embedded"
	// DockerRuntime begins the containerRuntimeEndpoint of a Docker Engine. unix:///path may follow.
	DockerRuntime = "docker://"
	// kubeletsRuntime is the kubelet's default for containerRuntimeEndpoint.
	kubeletsRuntime = "unix:///run/containerd/containerd.sock"
)

// Flags are the settings that KubeletConfiguration does not have. Zero values stand for the defaults.
type Flags struct {
	// ConfigFile and ConfigDir hold the KubeletConfiguration and its drop-ins.
	ConfigFile, ConfigDir string
	// RootDir holds the state that outlives a reboot. Default: DefaultRootDir, or JoinedRootDir with Kubeconfig.
	RootDir string
	// RunDir holds mounts of the runtime. The default is /run/berth for the two default roots, and RootDir/run for any
	// other root.
	RunDir string
	// HostnameOverride is the node's name. Default: the host's, in lower case.
	HostnameOverride string
	// NodeIPs are the node's addresses, at most one of each family. The unspecified address (0.0.0.0 or ::) stands
	// for the machine's default address of that family.
	NodeIPs []netip.Addr
	// NodeLabels are added to the labels that every node has.
	NodeLabels map[string]string
	// Socket is the local API's. The default is berth.sock in /run/berth, or in RootDir if that is not a default
	// root.
	Socket string
	// Providers configure the programs that supply registry credentials.
	Providers Providers
	Embedded  embedded.Settings
	// Kubeconfig makes the agent a node of a cluster. Empty means standalone. BootstrapKubeconfig may request the
	// first client certificate.
	Kubeconfig, BootstrapKubeconfig string
	// CertDir holds the certificates that the agent requests or makes. The default is RootDir/pki.
	CertDir string
	// CloudProvider is empty or external.
	CloudProvider string
	Absent        AbsentFlags
	Lock          Lock
	Disk          DiskFlags
	// Apart skips the settings for the cluster and the servers. Commands that only clean up the machine set it.
	Apart bool
	// CommandLine has the values of all flags by name, as they were given.
	CommandLine map[string]string
	// RuntimeCgroups is Runtime.Cgroups.
	RuntimeCgroups string
}

// Providers are the programs that supply registry credentials. Config is --image-credential-provider-config: a
// CredentialProviderConfig, or a directory of such files. BinDir is --image-credential-provider-bin-dir, the directory
// of the programs. Both are set or neither.
type Providers struct{ Config, BinDir string }

// AbsentFlags set the node's behaviour while the source of pods is missing.
type AbsentFlags struct {
	Offline   OfflineFlags
	Manifests ManifestFlags
}

// OfflineFlags control the saved pods, which KubeletConfiguration does not know. See Offline.
type OfflineFlags struct {
	Off     bool
	MaxAge  time.Duration
	KeyFile string
}

// Lock lets only one of several agent processes work at a time.
type Lock struct {
	// File is locked before the agent does anything. Empty means no lock.
	File string
	// Yield ends the agent when another process opens or removes File (--exit-on-lock-contention).
	Yield bool
}

// DiskFlags set how many dead containers are kept (see DeadContainers; nil stands for the default), which images, and
// storage.Mode.
type DiskFlags struct {
	MinAge              time.Duration
	PerContainer, Total *int
	EmptyDirQuota       bool
	// LoadedImages lets the agent remove unused images that were loaded from an archive.
	LoadedImages bool
}

// Config holds all settings of an agent. It is complete, valid and never changed. Only Load makes one.
type Config struct {
	// RootDir holds the state that outlives a reboot, RunDir the mounts of the runtime. Socket is the local API's. All
	// three are absolute paths.
	RootDir, RunDir, Socket string
	NodeName                string

	Sources  Sources
	Runtime  Runtime
	Images   Images
	Node     Node
	Pods     Pods
	Tracing  *Tracing // nil: no export
	Cluster  *Cluster // nil: standalone
	Offline  *Offline // nil: no saved pods; always nil if Cluster is nil
	Server   Server
	Shutdown Shutdown
	Disabled gate.Disabled
	Dead     DeadContainers
	Lock     Lock
	// CommandLine has the flags by name, with the values that the agent uses. The agent shows it on request.
	CommandLine map[string]string
	// Kubelet is the merged configuration of the files with all defaults. The agent shows it on request.
	Kubelet *v1beta1.KubeletConfiguration
}

// DeadContainers limits the dead instances of containers of running pods. The newest instance of each container is
// always kept.
type DeadContainers struct {
	// MinAge is how long an instance is kept after its creation. Default 0.
	MinAge time.Duration
	// PerContainer is how many instances of one container are kept, default 1. Total is how many are kept on the
	// node, default -1. Negative values set no limit.
	PerContainer, Total int
}

// Runtime configures the container runtime.
type Runtime struct {
	// Endpoint is unix:///path, DockerRuntime, EmbeddedRuntime, or empty: package endpoint then chooses one.
	Endpoint string
	// KubeletsDefault is the endpoint that a kubelet uses if none is configured, or $CONTAINER_RUNTIME_ENDPOINT. It
	// is empty without a cluster.
	KubeletsDefault string
	// RequestTimeout is the base of every CRI call's deadline. Default 2 min.
	RequestTimeout time.Duration
	// PodCIDRs are the address ranges of the embedded runtime's network, at most one of each family. Empty stands for
	// the runtime's default ranges.
	PodCIDRs []netip.Prefix
	// CgroupDriver is used if the runtime does not report one: cgroupfs (default) or systemd.
	CgroupDriver string
	// ParallelPulls is the maximum number of image pulls at the same time. 1 is serializeImagePulls, 0 sets no limit.
	ParallelPulls int
	Embedded      embedded.Settings
	// Cgroups is the cgroup that /stats/summary reports as the runtime's. Empty stands for the cgroup of the process
	// that listens on the runtime's socket.
	Cgroups string
}

// Images configures how long images are kept, and which pods may use them.
type Images struct {
	// HighThreshold and LowThreshold are percentages of the disk's size. Above the first, unused images are removed
	// down to the second. Default 85 and 80. HighThreshold 100 turns it off.
	HighThreshold, LowThreshold int
	// MinimumAge is how long an image is always kept. Default 2 min.
	MinimumAge time.Duration
	// MaximumAge is how long an unused image is kept. Default 0: no limit.
	MaximumAge time.Duration
	// Loaded means that images that were loaded from an archive are removed like others. Default: they stay.
	Loaded bool
	// Verification is imagePullCredentialsVerificationPolicy. Default
	// NeverVerifyPreloadedImages.
	Verification v1beta1.ImagePullCredentialsVerificationPolicy
	// Allowlist is preloadedImagesVerificationAllowlist.
	Allowlist []string
	Providers Providers
}

// Node configures the node's addresses and labels, and which resources of the machine pods may use.
type Node struct {
	// IPs are the configured addresses, at most one of each family. The unspecified address stands for the machine's
	// default address of that family.
	IPs []netip.Addr
	// Labels are added to the labels that every node has.
	Labels      map[string]string
	MaxPods     int32 // default 110
	PodsPerCore int32
	// KubeReserved, SystemReserved and the hard thresholds of Eviction are subtracted from the resources that pods may
	// request.
	KubeReserved   corev1.ResourceList
	SystemReserved corev1.ResourceList
	Eviction       eviction.Policy
	Storage        storage.Mode // how limits of local storage are enforced
	CgroupRoot     string       // default /
	// Taints are registerWithTaints, which pods have to tolerate.
	Taints  []corev1.Taint
	Pinning Pinning
	// OpenLoopback leaves out the packet filter rule that keeps pods away from the machine's loopback addresses
	// (makeIPTablesUtilChains: false).
	OpenLoopback bool
	Enforce      Enforcement
}

// Pods configures how pods run.
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
	// SingleProcessOOMKill is the configured value. nil means false on cgroup v2.
	SingleProcessOOMKill *bool
	// LimitedSwap is memorySwap.swapBehavior LimitedSwap.
	LimitedSwap bool
	// AllowedUnsafeSysctls are names and prefixes that end in *.
	AllowedUnsafeSysctls []string
	// UsernsIDs is userNamespaces.idsPerPod. Default 65536.
	UsernsIDs uint32
	// FlexVolumes is volumePluginDir, the directory of FlexVolume drivers. Default
	// /usr/libexec/kubernetes/kubelet-plugins/volume/exec/.
	FlexVolumes string
}

// Logs limits the log of each container instance.
type Logs struct {
	MaxSize  int64 // of one file in bytes, default 10Mi; negative: no limit
	MaxFiles int   // at least 2, default 5
	// Workers is how many files are compressed at the same time. Default 1.
	Workers int
}

// Tracing is the OTLP export of spans.
type Tracing struct {
	Endpoint               string
	SamplingRatePerMillion int32
}
