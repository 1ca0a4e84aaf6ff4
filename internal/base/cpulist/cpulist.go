package cpulist

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Max is the number of CPUs that Linux supports at most (NR_CPUS). It bounds what a list of a few characters costs: the
// CPUs 0-4294967295 would need gigabytes.
const Max = 8192

// Parse parses a list in the format of cpuset(7), such as "0-3,8,10-11". The list may be empty. The result is in the
// order of the list. An error says that the list has another format, or ids that are not below Max.
func Parse(text string) ([]int, error) {
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
		from, err := ID(first)
		if err != nil {
			return nil, fmt.Errorf("parse list %.80q: %w", text, err)
		}
		to, err := ID(last)
		if err != nil {
			return nil, fmt.Errorf("parse list %.80q: %w", text, err)
		}
		if from > to || len(ids)+to-from > Max {
			return nil, fmt.Errorf("parse list %.80q: invalid range %q", text, part)
		}
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Set is the list of Parse as a set. Unlike cpuset.Parse, it refuses CPUs that no machine has.
func Set(text string) (cpuset.CPUSet, error) {
	ids, err := Parse(text)
	return cpuset.New(ids...), err
}

// ID parses the id of one CPU or NUMA node, which must be below Max.
func ID(text string) (int, error) {
	id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err == nil && id >= Max {
		err = fmt.Errorf("%d is beyond %d", id, Max-1)
	}
	return int(id), err
}

// Mask parses the kernel's hexadecimal mask in words of 32 bits, the highest first, such as "00000001,0000000f".
func Mask(text string) ([]int, error) {
	words := strings.Split(strings.TrimSpace(text), ",")
	if len(words) > Max/32 {
		return nil, fmt.Errorf("parse mask %.80q: more than %d bits", text, Max)
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
