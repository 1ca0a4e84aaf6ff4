package agentflag

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/config/embedded"
)

// Node accepts the kubelet's flags that have no field in its configuration.
func TestNode(t *testing.T) {
	var got config.Flags
	cmd := &cobra.Command{}
	Config(cmd, &got)
	Node(cmd, &got)
	err := cmd.ParseFlags([]string{
		"--config=/c", "--config-dir=/c.d", "--kubeconfig=/k", "--bootstrap-kubeconfig=/b", "--cert-dir=/pki",
		"--cloud-provider=external", "--hostname-override=n",
		"--node-ip=::", "--node-labels=a=b,c=d", "--runtime-cgroups=/r", "--maximum-dead-containers", "-1",
		"--maximum-dead-containers-per-container=2", "--minimum-container-ttl-duration=1m", "--lock-file=/l",
		"--exit-on-lock-contention", "--empty-dir-quota", "--remove-loaded-images",
		"--offline-pods=false", "--offline-max-age=1h", "--offline-key-file=/key",
		"--cri-listen=unix:///c", "--pod-network=cni", "--cni-conf-dir=/n", "--nri-socket=/s",
		"--missing-manifests=end", "--claim-retention=0s",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Flags{
		ConfigFile: "/c", ConfigDir: "/c.d", Kubeconfig: "/k", BootstrapKubeconfig: "/b", CertDir: "/pki",
		CloudProvider: "external", HostnameOverride: "n",
		NodeIPs: []netip.Addr{netip.IPv6Unspecified()}, NodeLabels: map[string]string{"a": "b", "c": "d"},
		RuntimeCgroups: "/r", Lock: config.Lock{File: "/l", Yield: true},
		Disk: config.DiskFlags{MinAge: time.Minute, PerContainer: new(2), Total: new(-1), EmptyDirQuota: true,
			LoadedImages: true},
		Embedded: embedded.Settings{CRIListen: "unix:///c", PodNetwork: "cni", CNIConfDir: "/n", NRISocket: "/s"},
		Absent: config.AbsentFlags{
			Manifests: config.ManifestFlags{Missing: "end", ClaimRetention: new(time.Duration(0))},
			Offline:   config.OfflineFlags{Off: true, MaxAge: time.Hour, KeyFile: "/key"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	set := Values(cmd.Flags())
	for name, want := range map[string]string{
		"config": "/c", "node-ip": "::", "node-labels": "[a=b,c=d]", "maximum-dead-containers": "-1",
		"offline-pods": "false", "lock-file": "/l", "cri-listen": "unix:///c", "runtime-cgroups": "/r",
	} {
		if got, known := set[name]; got != want || !known {
			t.Errorf("value of --%s is %q, want %q", name, got, want)
		}
	}
}

// The error for a deprecated kubelet flag names the configuration field that replaces it.
func TestKubeletFlags(t *testing.T) {
	cmd := &cobra.Command{Use: "agent"}
	Node(cmd, &config.Flags{})
	for args, want := range map[string]string{
		"--cgroup-driver=systemd": `next: write cgroupDriver into the file of --config, or into a .conf ` +
			`file of --config-dir`,
		"--pod-infra-container-image=p:1": `next: leave it out: the sandbox image is the runtime's, and kubelets ` +
			`since 1.35 do not take it either`,
		"--v=2":      `next: use --log-level`,
		"-v=2":       `next: use --log-level`,
		"--nonsense": `next: see "agent --help"`,
	} {
		err := cmd.FlagErrorFunc()(cmd, cmd.ParseFlags([]string{args}))
		if got := "next: " + client.NextStep(err); got != want {
			t.Errorf("%s: %v, %s; want %s", args, err, got, want)
		}
	}
}

// Every field in the map exists in KubeletConfiguration.
func TestFields(t *testing.T) {
	for flag, path := range fields() {
		kind := reflect.TypeFor[v1beta1.KubeletConfiguration]()
		for name := range strings.SplitSeq(path, ".") {
			field, ok := byJSON(kind, name)
			if !ok {
				t.Errorf("--%s: there is no field %s", flag, path)
				break
			}
			if kind = field.Type; kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
		}
	}
}

func byJSON(t reflect.Type, name string) (reflect.StructField, bool) {
	if t.Kind() != reflect.Struct {
		return reflect.StructField{}, false
	}
	return t.FieldByNameFunc(func(goName string) bool {
		f, _ := t.FieldByName(goName)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return tag == name
	})
}
