package handover

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// firstPidfd is the first of the inherited pidfds, after the descriptor for -ready.
const firstPidfd = 4

// Arguments returns the arguments for a program that continues in this process. The descriptors that this program has
// inherited are closed. The new program inherits the descriptors of outputs.
func Arguments(args []string, outputs []int) []string {
	var list []string
	for i, arg := range args {
		if i < 2 || strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "-ready=") &&
			!strings.HasPrefix(arg, "-outputs=") {
			list = append(list, arg)
		}
	}
	texts := make([]string, len(outputs))
	for i, fd := range outputs {
		texts[i] = strconv.Itoa(fd)
	}
	return append(list, "-outputs="+strings.Join(texts, ","))
}

// Close closes a comma-separated list of descriptors.
func Close(list string) {
	for text := range strings.SplitSeq(list, ",") {
		if fd, err := strconv.Atoi(text); err == nil {
			_ = unix.Close(fd)
		}
	}
}

// Pidfds returns the inherited pidfds by container.
func Pidfds(ids []string) map[string]int {
	fds := map[string]int{}
	for i, id := range ids {
		fds[id] = firstPidfd + i
		unix.CloseOnExec(firstPidfd + i)
	}
	return fds
}
