package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/berth-run/berth/internal/base/cpulist"
)

// parseMemTotal finds MemTotal in /proc/meminfo ("MemTotal: 1 kB") or in a node's meminfo ("Node 0 MemTotal: 1 kB"), in
// bytes.
func parseMemTotal(text string) (int64, error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		_, value, found := strings.Cut(lines.Text(), "MemTotal:")
		if !found {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		if err != nil || kib < 0 || kib > math.MaxInt64/1024 {
			return 0, fmt.Errorf("parse memory %q: not a number of kB", lines.Text())
		}
		return kib * 1024, nil
	}
	return 0, fmt.Errorf("parse memory: no line MemTotal")
}

// parseProcessors finds the ids of online CPUs in /proc/cpuinfo. It understands lines "processor : N" only; some
// architectures write other lines.
func parseProcessors(text []byte) []int {
	var ids []int
	for line := range bytes.Lines(text) {
		key, value, found := strings.Cut(string(line), ":")
		if !found || strings.TrimSpace(key) != "processor" {
			continue
		}
		if id, err := cpulist.ID(value); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// parseSize parses the size of a cache, such as "512K", in bytes.
func parseSize(text string) (int64, error) {
	text = strings.TrimSpace(text)
	unit := int64(1)
	switch {
	case strings.HasSuffix(text, "K"):
		unit = 1 << 10
	case strings.HasSuffix(text, "M"):
		unit = 1 << 20
	}
	n, err := strconv.ParseUint(strings.TrimRight(text, "KM"), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("parse size %.80q: %w", text, err)
	}
	return int64(n) * unit, nil
}

// number parses the number in a directory's name, such as 12 in "cpu12". It returns false for other names, such as
// "cpufreq".
func number(name, prefix string) (int, bool) {
	digits, found := strings.CutPrefix(name, prefix)
	if !found {
		return 0, false
	}
	id, err := cpulist.ID(digits)
	return id, err == nil
}

// pageSize parses the size in bytes in a directory's name, such as "hugepages-2048kB".
func pageSize(name string) (int64, bool) {
	digits, found := strings.CutPrefix(name, "hugepages-")
	digits, kib := strings.CutSuffix(digits, "kB")
	n, err := strconv.ParseUint(digits, 10, 40)
	return int64(n) * 1024, found && kib && err == nil
}
