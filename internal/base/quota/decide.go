package quota

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"
)

// first is the kubelet's first project ID. Smaller IDs are for the machine's administrator.
const first = 1<<20 + 1

// tries is how many IDs Assign tries before it gives up.
const tries = 1 << 16

// reservedIDs returns the IDs in the text of /etc/projects (ID:PATH) or /etc/projid (NAME:ID). See projects(5).
func reservedIDs(projects, projid []byte) map[uint32]bool {
	ids := map[uint32]bool{}
	add := func(text string) {
		if id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32); err == nil {
			ids[uint32(id)] = true
		}
	}
	for lines := bufio.NewScanner(bytes.NewReader(projects)); lines.Scan(); {
		id, _, _ := strings.Cut(lines.Text(), ":")
		add(id)
	}
	for lines := bufio.NewScanner(bytes.NewReader(projid)); lines.Scan(); {
		if _, id, ok := strings.Cut(lines.Text(), ":"); ok {
			add(id)
		}
	}
	return ids
}

// blocks returns a limit in the kernel's blocks of 1 KiB. It rounds bytes down to whole blocks of the file system,
// because xfs would round up. The limit is at least one such block, because 0 would mean no limit.
func blocks(bytes, blockSize int64) uint64 { return uint64(max(1, bytes/blockSize) * blockSize / 1024) }
