package firewall

import (
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestDeletes(t *testing.T) {
	name := func(table string) []byte {
		return append([]byte{unix.AF_INET, 0, 0, 0},
			nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(table)).Serialize()...)
	}
	const subsystem = unix.NFNL_SUBSYS_NFTABLES << 8
	for title, test := range map[string]struct {
		kind uint16
		data []byte
		want bool
	}{
		"the table":     {subsystem | unix.NFT_MSG_DELTABLE, name("berth"), true},
		"a chain of it": {subsystem | unix.NFT_MSG_DELCHAIN, name("berth"), true},
		"a rule of it":  {subsystem | unix.NFT_MSG_DELRULE, name("berth"), true},
		"a new rule":    {subsystem | unix.NFT_MSG_NEWRULE, name("berth"), false},
		"another table": {subsystem | unix.NFT_MSG_DELTABLE, name("berth_12345678"), false},
		"too short":     {subsystem | unix.NFT_MSG_DELTABLE, []byte{1}, false},
		"no attributes": {subsystem | unix.NFT_MSG_DELTABLE, []byte{unix.AF_INET, 0, 0, 0}, false},
	} {
		if got := deletes(test.kind, test.data, "berth"); got != test.want {
			t.Errorf("%s: %t, want %t", title, got, test.want)
		}
	}
}
