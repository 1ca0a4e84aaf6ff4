package agentflag

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/config/embedded"
)

// Config adds the flags of every command that builds an agent.
func Config(cmd *cobra.Command, f *config.Flags) {
	cmd.Flags().StringVar(&f.ConfigFile, "config", "", "KubeletConfiguration `file`")
	cmd.Flags().StringVar(&f.ConfigDir, "config-dir", "",
		"`directory` with .conf files that are merged over --config, in the order of their names")
	mark(cmd.MarkFlagFilename("config", "yaml", "yml", "json"))
	mark(cmd.MarkFlagDirname("config-dir"))
}

// Manifests adds the flags of every command that runs an agent, about pods of manifests, and manifests and claims that
// are gone.
func Manifests(cmd *cobra.Command, f *config.ManifestFlags) {
	flags := cmd.Flags()
	flags.StringVar(&f.Missing, "missing-manifests", "",
		"`keep|end`: whether the pods of manifests run on while the manifest directory is missing (default: "+
			"missingManifests in --config, else keep, or end with --kubeconfig)")
	flags.StringVar(&f.Static, "static-pods", "",
		"`critical|ordinary`: whether every static pod is critical, or only by its priority (default: ordinary, or "+
			"critical with --kubeconfig)")
	flags.Var(&span{&f.ClaimRetention, config.DefaultClaimRetention}, "claim-retention",
		"how long the data of a deleted claim is kept, as a `duration`; 0s: it is removed at once")
}

// span is a duration flag without a value until it is set.
type span struct {
	to        **time.Duration
	byDefault time.Duration
}

func (s *span) Type() string { return "duration" }

func (s *span) String() string {
	if s.to == nil || *s.to == nil {
		return s.byDefault.String()
	}
	return (*s.to).String()
}

func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	*s.to = &d
	return nil
}

// RunDir adds the flag for the directory of the runtime's mounts. byDefault describes its default value.
func RunDir(cmd *cobra.Command, f *config.Flags, byDefault string) {
	cmd.Flags().StringVar(&f.RunDir, "run-dir", "", "`directory` for mounts of the runtime (default "+byDefault+")")
	mark(cmd.MarkFlagDirname("run-dir"))
}

// Node adds the flags that only the daemon has.
func Node(cmd *cobra.Command, f *config.Flags) {
	flags := cmd.Flags()
	RunDir(cmd, f, "/run/berth, or run in another --root-dir")
	flags.StringVar(&f.HostnameOverride, "hostname-override", "", "the node's `name` (default: the host name)")
	flags.TextVar((*process.Addresses)(&f.NodeIPs), "node-ip", process.Addresses(nil),
		"the node's IP `address`, or one of each family separated by a comma; 0.0.0.0 or :: stands for the default "+
			"address of its family")
	flags.StringToStringVar(&f.NodeLabels, "node-labels", nil, "`labels` of the node: key=value, separated by commas")
	flags.StringVar(&f.Providers.Config, "image-credential-provider-config", "",
		"CredentialProviderConfig `file`, or a directory of them, for the plugins that supply registry credentials")
	flags.StringVar(&f.Providers.BinDir, "image-credential-provider-bin-dir", "",
		"`directory` with the plugins' programs")
	mark(cmd.MarkFlagDirname("image-credential-provider-bin-dir"))
	flags.StringVar(&f.Lock.File, "lock-file", "",
		"`file` to lock at the start; the agent waits while another process holds the lock")
	flags.BoolVar(&f.Lock.Yield, "exit-on-lock-contention", false,
		"end when another process opens or removes the --lock-file; containers keep running")
	flags.StringVar(&f.RuntimeCgroups, "runtime-cgroups", "",
		"`cgroup` of the container runtime, such as /system.slice/containerd.service, to report in "+
			"/stats/summary; the "+
			"agent moves no process there")
	flags.BoolVar(&f.Disk.EmptyDirQuota, "empty-dir-quota", false,
		"let writes beyond the sizeLimit of an emptyDir fail, instead of evicting the pod, if --root-dir is on xfs or "+
			"ext4 with project quotas")
	flags.BoolVar(&f.Disk.LoadedImages, "remove-loaded-images", false,
		"remove unused images that were loaded from an archive like pulled ones, when a disk runs full or they are "+
			"older than imageMaximumGCAge")
	Manifests(cmd, &f.Absent.Manifests)
	inProcess(cmd, &f.Embedded)
	cluster(cmd, f)
	dead(cmd, f)
	kubelets(cmd)
}

// inProcess adds the flags for the embedded runtime.
func inProcess(cmd *cobra.Command, f *embedded.Settings) {
	flags := cmd.Flags()
	flags.StringVar(&f.CRIListen, "cri-listen", "",
		"also serve the embedded runtime's CRI on this socket, for crictl: `unix://PATH`")
	flags.StringVar(&f.PodNetwork, "pod-network", embedded.NetworkAuto,
		"`auto|cni`: pods in the embedded runtime use the network of the CNI configuration, which may appear or "+
			"disappear at any time. Without a configuration, auto uses the runtime's built-in network; with cni the "+
			"node is not ready, and pods that need a network wait")
	flags.StringVar(&f.CNIConfDir, "cni-conf-dir", "",
		"`directory` with the CNI configuration of the embedded runtime (default /etc/cni/net.d)")
	mark(cmd.MarkFlagDirname("cni-conf-dir"))
	flags.StringVar(&f.NRISocket, "nri-socket", "",
		"`path` of the socket where NRI plugins connect to the embedded runtime, or off (default "+
			embedded.DefaultNRISocket+"; with a --root-dir of your own, nri.sock in the runtime's directory below "+
			"/run/berth)")
}

// Values returns the values of all flags by name, as /flagz shows them. No flag holds a secret: those about
// secrets name a file.
func Values(flags *pflag.FlagSet) map[string]string {
	all := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	return all
}

// dead adds the flags about dead containers.
func dead(cmd *cobra.Command, f *config.Flags) {
	flags := cmd.Flags()
	flags.DurationVar(&f.Disk.MinAge, "minimum-container-ttl-duration", 0,
		"shortest `duration` that a dead container of a live pod is kept after its creation")
	flags.Var(&count{&f.Disk.PerContainer, "1"}, "maximum-dead-containers-per-container",
		"`number` of dead instances to keep for each container of a live pod; less than 0: all. The newest instance "+
			"is always kept")
	flags.Var(&count{&f.Disk.Total, "-1"}, "maximum-dead-containers",
		"`number` of dead containers to keep on the node; less than 0: no limit")
}

// count is a number flag without a value until it is set.
type count struct {
	to        **int
	byDefault string
}

func (c *count) Type() string { return "int" }

func (c *count) String() string {
	if c.to == nil || *c.to == nil {
		return c.byDefault
	}
	return strconv.Itoa(**c.to)
}

func (c *count) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 32)
	if err != nil {
		return err
	}
	*c.to = new(int(n))
	return nil
}

// cluster adds the flags for a node that belongs to a cluster.
func cluster(cmd *cobra.Command, f *config.Flags) {
	flags := cmd.Flags()
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "",
		"kubeconfig `file`: join its cluster as a node, with the kubelet's defaults, the kubelet's runtime unless "+
			"containerRuntimeEndpoint is set, and --root-dir "+config.JoinedRootDir)
	flags.StringVar(&f.BootstrapKubeconfig, "bootstrap-kubeconfig", "",
		"kubeconfig `file` with the right to request a client certificate, for when --kubeconfig does not "+
			"exist yet or "+
			"cannot be used any more")
	flags.StringVar(&f.CertDir, "cert-dir", "",
		"`directory` for the certificates that the agent requests or creates (default pki in --root-dir)")
	flags.StringVar(&f.CloudProvider, "cloud-provider", "",
		"external: a cloud controller of the cluster initializes the node; empty: there is none")
	on := flags.VarPF((*not)(&f.Absent.Offline.Off), "offline-pods", "",
		"store the cluster's pods on this machine, and start them from there if the API server is unreachable after a "+
			"boot")
	on.NoOptDefVal = "true"
	flags.DurationVar(&f.Absent.Offline.MaxAge, "offline-max-age", 0,
		"do not start stored pods if the last contact with the API server is longer ago than this `duration`; 0s: no "+
			"limit")
	flags.StringVar(&f.Absent.Offline.KeyFile, "offline-key-file", "",
		"`file` with the key that encrypts the stored pods: 32 bytes in base64, readable to its owner only (default: "+
			"offline/key in --root-dir, created if missing)")
	for _, name := range []string{"kubeconfig", "bootstrap-kubeconfig", "offline-key-file"} {
		mark(cmd.MarkFlagFilename(name))
	}
	mark(cmd.MarkFlagDirname("cert-dir"))
}

// not is a flag that is true by default and sets a field with the opposite meaning.
type not bool

var _ pflag.Value = (*not)(nil)

func (n *not) String() string { return strconv.FormatBool(!bool(*n)) }
func (n *not) Type() string   { return "bool" }

func (n *not) Set(text string) error {
	on, err := strconv.ParseBool(text)
	*n = not(!on)
	return err
}

// mark panics on an error, which only a wrong flag name in this package can cause.
func mark(err error) {
	if err != nil {
		panic(err)
	}
}
