package firewall

import (
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// deletes reports whether a message of the kernel says that the table, or something in it, was deleted. The first
// attribute of such messages is the name of the table.
func deletes(kind uint16, data []byte, table string) bool {
	const header = 4 // struct nfgenmsg
	switch kind & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE:
	default:
		return false
	}
	if len(data) < header {
		return false
	}
	attributes, err := nl.ParseRouteAttr(data[header:])
	if err != nil {
		return false
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.NFTA_TABLE_NAME {
			return strings.TrimRight(string(a.Value), "\x00") == table
		}
	}
	return false
}
