package packetfilter

import (
	"os/exec"
	"testing"

	"github.com/berth-run/berth/internal/base/roottest"
)

func TestAnswersAgreeWithThePrograms(t *testing.T) {
	if !roottest.OwnNetwork(t) {
		return
	}
	if _, err := exec.LookPath("nft"); err == nil {
		works := exec.CommandContext(t.Context(), "nft", "list", "tables").Run() == nil
		if got := Nftables(); got != works {
			t.Errorf("Nftables returns %t, nft works: %t", got, works)
		}
	}
	for _, table := range []string{"filter", "nat"} {
		works := exec.CommandContext(t.Context(), "iptables-save", "-t", table).Run() == nil
		if got := IPTables(t.Context(), table); got != works {
			t.Errorf("IPTables returns %t for %s, iptables-save works: %t", got, table, works)
		}
	}
	if IPTables(t.Context(), "none") {
		t.Error("a table that does not exist can be read")
	}
}
