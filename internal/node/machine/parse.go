package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// maxID is the number of CPUs that Linux supports at most (NR_CPUS). It bounds what a damaged list costs.
const maxID = 8192

// parseList parses the kernel's list of ids, such as "0-3,8,10-11". The empty list is valid.
func parseList(text string) ([]int, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var ids []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := parseID(first)
		if err != nil {
			return nil, fmt.Errorf("parse list %.80q: %w", text, err)
		}
		to, err := parseID(last)
		if err != nil {
			return nil, fmt.Errorf("parse list %.80q: %w", text, err)
		}
		if from > to || len(ids)+to-from > maxID {
			return nil, fmt.Errorf("parse list %.80q: invalid range %q", text, part)
		}
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ParseCPUs parses a list of CPUs as in cpuset(7). Unlike cpuset.Parse, it refuses CPUs that no machine has: a range of
// a few characters could otherwise exhaust the memory.
func ParseCPUs(text string) (cpuset.CPUSet, error) {
	ids, err := parseList(text)
	return setOf(ids), err
}

func parseID(text string) (int, error) {
	id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err == nil && id >= maxID {
		err = fmt.Errorf("%d is beyond %d", id, maxID-1)
	}
	return int(id), err
}

// parseMask parses the kernel's hexadecimal mask in words of 32 bits, the highest first, such as "00000001,0000000f".
func parseMask(text string) ([]int, error) {
	words := strings.Split(strings.TrimSpace(text), ",")
	if len(words) > maxID/32 {
		return nil, fmt.Errorf("parse mask %.80q: more than %d bits", text, maxID)
	}
	var ids []int
	for i := range words {
		word, err := strconv.ParseUint(words[len(words)-1-i], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("parse mask %.80q: %w", text, err)
		}
		for bit := range 32 {
			if word&(1<<bit) != 0 {
				ids = append(ids, 32*i+bit)
			}
		}
	}
	return ids, nil
}

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
		if id, err := parseID(value); err == nil {
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
	id, err := parseID(digits)
	return id, err == nil
}

// pageSize parses the size in bytes in a directory's name, such as "hugepages-2048kB".
func pageSize(name string) (int64, bool) {
	digits, found := strings.CutPrefix(name, "hugepages-")
	digits, kib := strings.CutSuffix(digits, "kB")
	n, err := strconv.ParseUint(digits, 10, 40)
	return int64(n) * 1024, found && kib && err == nil
}

func setOf(ids []int) cpuset.CPUSet { return cpuset.New(ids...) }
