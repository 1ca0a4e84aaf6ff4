package network

import (
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/roottest"
)

// The rules of a sandbox are removed when it is stopped. Its removal does not read all rules of the machine again,
// unless the stop failed or the agent was started again meanwhile.
func TestRemovalLooksForRulesOnlyIfNoStopHas(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	sandbox := strings.Repeat("1a", 32)
	nft := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "nft", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("nft %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	start := func() *Network {
		return inRoot(t.TempDir(), "berth0", slog.New(slog.NewTextHandler(t.Output(), nil)))
	}
	stop := &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}
	remove := &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox}
	n := start()
	for _, call := range []struct {
		name    string
		req     any
		failed  bool
		restart bool
		removes bool
	}{
		{name: "a stop that failed", req: stop, failed: true},
		{name: "a removal after it", req: remove, removes: true},
		{name: "a stop", req: stop, removes: true},
		{name: "the next stop", req: stop},
		{name: "a removal that failed", req: remove, failed: true},
		{name: "the removal", req: remove},
		{name: "a removal after a restart", req: remove, restart: true, removes: true},
	} {
		if call.restart {
			n = start()
		}
		nft("add table inet cni_plugins_masquerade; add chain inet cni_plugins_masquerade masq_checks; " +
			"add rule inet cni_plugins_masquerade masq_checks masquerade comment " +
			`"01-02, net: berth0, if: eth0, id: ` +
			sandbox[:58] + `"`)
		n.After(t.Context(), call.req, call.failed)
		if removed := !strings.Contains(nft("list", "ruleset"), sandbox[:58]); removed != call.removes {
			t.Errorf("%s removes the rules: %t, want %t", call.name, removed, call.removes)
		}
		nft("flush", "ruleset")
	}
}
