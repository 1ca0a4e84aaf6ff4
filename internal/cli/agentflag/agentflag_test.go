package agentflag

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/config"
)

// What is on a kubelet's command line besides its configuration is taken.
func TestNode(t *testing.T) {
	var got config.Flags
	cmd := &cobra.Command{}
	Config(cmd, &got)
	Node(cmd, &got)
	err := cmd.ParseFlags([]string{
		"--config=/c", "--config-dir=/c.d", "--kubeconfig=/k", "--bootstrap-kubeconfig=/b", "--cert-dir=/pki", "--cloud-provider=external", "--hostname-override=n",
		"--node-ip=::", "--node-labels=a=b,c=d", "--runtime-cgroups=/r", "--maximum-dead-containers", "-1", "--offline-pods=false", "--offline-max-age=1h", "--offline-key-file=/key",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Flags{
		ConfigFile: "/c", ConfigDir: "/c.d", Kubeconfig: "/k", BootstrapKubeconfig: "/b", CertDir: "/pki", CloudProvider: "external", HostnameOverride: "n",
		NodeIPs: []netip.Addr{netip.IPv6Unspecified()}, NodeLabels: map[string]string{"a": "b", "c": "d"},
		NotActedOn: []string{"runtime-cgroups", "maximum-dead-containers"}, Offline: config.OfflineFlags{Off: true, MaxAge: time.Hour, KeyFile: "/key"},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
