package agentflag

import (
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/config"
)

// Config adds the flags of every command that makes an agent.
func Config(cmd *cobra.Command, f *config.Flags) {
	cmd.Flags().StringVar(&f.ConfigFile, "config", "", "KubeletConfiguration `file`")
	cmd.Flags().StringVar(&f.ConfigDir, "config-dir", "",
		"`directory` of .conf files that are merged over --config, in order of their names")
	mark(cmd.MarkFlagFilename("config", "yaml", "yml", "json"))
	mark(cmd.MarkFlagDirname("config-dir"))
}

// Node adds the flags of the daemon alone.
func Node(cmd *cobra.Command, f *config.Flags) {
	flags := cmd.Flags()
	flags.StringVar(&f.RunDir, "run-dir", "",
		"`directory` of sockets and mounts (default /run/berth, or run in another --root-dir)")
	flags.StringVar(&f.HostnameOverride, "hostname-override", "", "the node's `name`; default: the host's")
	flags.TextVar((*process.Addresses)(&f.NodeIPs), "node-ip", process.Addresses(nil),
		"the node's `address`, or two of different families, with a comma between; 0.0.0.0 or :: is the default one "+
			"of its family")
	flags.StringToStringVar(&f.NodeLabels, "node-labels", nil, "`labels` of the node: key=value, with commas between")
	flags.StringVar(&f.Providers.Config, "image-credential-provider-config", "",
		"CredentialProviderConfig `file`, or a directory of them: plugins that know the credentials of registries")
	flags.StringVar(&f.Providers.BinDir, "image-credential-provider-bin-dir", "",
		"`directory` with the plugins' programs")
	mark(cmd.MarkFlagDirname("run-dir"))
	mark(cmd.MarkFlagDirname("image-credential-provider-bin-dir"))
	flags.StringVar(&f.Lock.File, "lock-file", "",
		"`file` to lock before anything is done, and to wait for while another process has its lock")
	flags.BoolVar(&f.Lock.Yield, "exit-on-lock-contention", false,
		"end when another process opens the --lock-file, or removes it; containers run on")
	flags.StringVar(&f.RuntimeCgroups, "runtime-cgroups", "",
		"`cgroup` of the container runtime, such as /system.slice/containerd.service, for /stats/summary; no process "+
			"is moved there")
	embedded(cmd, &f.Embedded)
	cluster(cmd, f)
	dead(cmd, f)
	kubelets(cmd)
}

// embedded adds the flags about the runtime that the agent carries.
func embedded(cmd *cobra.Command, f *config.EmbeddedFlags) {
	flags := cmd.Flags()
	flags.StringVar(&f.CRIListen, "cri-listen", "",
		"serve the embedded runtime's CRI here too, for crictl: `unix://PATH`")
	flags.StringVar(&f.PodNetwork, "pod-network", config.PodNetworkAuto,
		"`auto|cni`: pods in the embedded runtime have the network of the CNI configuration, which may come and go "+
			"at any time. Without one, auto gives them a network of the runtime's own; with cni the node is not "+
			"ready, and pods that need a network wait")
	flags.StringVar(&f.CNIConfDir, "cni-conf-dir", "",
		"`directory` of the CNI configuration for the embedded runtime (default /etc/cni/net.d)")
	mark(cmd.MarkFlagDirname("cni-conf-dir"))
}

// Values are all flags by name, as /flagz shows them. None is a secret: those that
// have to do with one name a file.
func Values(flags *pflag.FlagSet) map[string]string {
	all := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	return all
}

// dead adds the flags about dead containers.
func dead(cmd *cobra.Command, f *config.Flags) {
	flags := cmd.Flags()
	flags.DurationVar(&f.Dead.MinAge, "minimum-container-ttl-duration", 0,
		"for how long after its creation a dead container of a live pod stays at least, a `duration`")
	flags.Var(&count{&f.Dead.PerContainer, "1"}, "maximum-dead-containers-per-container",
		"how many dead instances of a container of a live pod stay, a `number`; less than 0: all. The newest "+
			"instance always does")
	flags.Var(&count{&f.Dead.Total, "-1"}, "maximum-dead-containers",
		"how many of them stay on the node, a `number`; less than 0: no bound")
}

// count is a number that may not be given.
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

// cluster adds what makes the node one of a cluster.
func cluster(cmd *cobra.Command, f *config.Flags) {
	flags := cmd.Flags()
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "",
		"kubeconfig `file`: be a node of its cluster, with the kubelet's defaults, its runtime where "+
			"containerRuntimeEndpoint is not set, and --root-dir "+config.JoinedRootDir)
	flags.StringVar(&f.BootstrapKubeconfig, "bootstrap-kubeconfig", "",
		"kubeconfig `file` with the right to ask for a client certificate, where --kubeconfig is not there yet or of "+
			"no use any more")
	flags.StringVar(&f.CertDir, "cert-dir", "",
		"`directory` of the certificates that the agent asks for or makes (default pki in --root-dir)")
	flags.StringVar(&f.CloudProvider, "cloud-provider", "",
		"external: a controller of the cluster knows the machine; empty: none does")
	on := flags.VarPF((*not)(&f.Offline.Off), "offline-pods", "",
		"keep a record of the cluster's pods here, and start them from it when the machine boots while the API "+
			"server is away")
	on.NoOptDefVal = "true"
	flags.DurationVar(&f.Offline.MaxAge, "offline-max-age", 0,
		"do not start them if the API server was last heard of longer ago than this `duration`; 0s: however "+
			"long it was")
	flags.StringVar(&f.Offline.KeyFile, "offline-key-file", "",
		"`file` with the key of that record: 32 bytes in base64, for its owner alone (default: one is made, "+
			"offline/key in --root-dir)")
	for _, name := range []string{"kubeconfig", "bootstrap-kubeconfig", "offline-key-file"} {
		mark(cmd.MarkFlagFilename(name))
	}
	mark(cmd.MarkFlagDirname("cert-dir"))
}

// not is a flag that is on by default, for a field that is off by default.
type not bool

var _ pflag.Value = (*not)(nil)

func (n *not) String() string { return strconv.FormatBool(!bool(*n)) }
func (n *not) Type() string   { return "bool" }

func (n *not) Set(text string) error {
	on, err := strconv.ParseBool(text)
	*n = not(!on)
	return err
}

// mark panics on what only a wrong name in this package can cause.
func mark(err error) {
	if err != nil {
		panic(err)
	}
}
