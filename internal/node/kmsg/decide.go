package kmsg

import (
	"strconv"
	"strings"
)

// facilityKern is the facility of the kernel itself (Documentation/ABI/testing/dev-kmsg).
const facilityKern = 0

// message returns the text of a record of the kernel. ok is false for records that programs wrote and for malformed
// ones. A record is "PRIORITY,SEQUENCE,TIME,FLAGS[,...];TEXT\n" with the priority facility<<3 | level.
func message(record string) (text string, ok bool) {
	head, text, ok := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	number, err := strconv.ParseUint(priority, 10, 32)
	if !ok || err != nil || number>>3 != facilityKern {
		return "", false
	}
	text, _, _ = strings.Cut(text, "\n") // lines of a dictionary follow
	return text, true
}

// victim is a killed process.
type victim struct {
	process string
	pid     int
}

// parser finds victims in successive messages of the kernel.
type parser struct {
	// machine: the next victim was killed because the machine is out of memory. Linux before 5.1 writes the reason in a
	// separate message before the victim.
	machine bool
}

// ofMachine is the start of a message about a process killed because the machine is out of memory. For a cgroup the
// message starts differently (mm/oom_kill.c).
const ofMachine = "Out of memory"

// next parses one message. It returns the victim if the message says that a process was killed because the machine is
// out of memory.
func (p *parser) next(text string) (v victim, ok bool) {
	why, rest, killed := strings.Cut(text, "Killed process ")
	chosen := strings.Contains(text, ": Kill process ")
	switch {
	case chosen:
		p.machine = strings.HasPrefix(text, ofMachine)
		return v, false
	case killed && why == "":
		killed, p.machine = p.machine, false
	case killed:
		killed = strings.HasPrefix(why, ofMachine)
	}
	if !killed {
		return v, false
	}
	number, rest, _ := strings.Cut(rest, " (")
	end := strings.LastIndex(rest, ") ")
	pid, err := strconv.Atoi(number)
	if err != nil || end < 0 {
		return v, false
	}
	return victim{rest[:end], pid}, true
}
