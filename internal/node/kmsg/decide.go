package kmsg

import (
	"strconv"
	"strings"
)

// facilityKern is the kernel's own (Documentation/ABI/testing/dev-kmsg).
const facilityKern = 0

// message is the text of a record of the kernel's; ok is false for what a program has
// written, and for what is no record. A record is
// "PRIORITY,SEQUENCE,TIME,FLAGS[,...];TEXT\n", where the priority is facility<<3 | level.
func message(record string) (text string, ok bool) {
	head, text, ok := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	number, err := strconv.ParseUint(priority, 10, 32)
	if !ok || err != nil || number>>3 != facilityKern {
		return "", false
	}
	text, _, _ = strings.Cut(text, "\n") // then lines of a dictionary
	return text, true
}

// victim is a process that was killed.
type victim struct {
	process string
	pid     int
}

// parser finds victims in the messages of the kernel, one after the other.
type parser struct {
	// machine: the next victim is the machine's. Linux before 5.1 says whose it is in a
	// message ahead of the one that names it.
	machine bool
}

// ofMachine is what the kernel begins a message with about a process that it kills for
// want of memory of the machine; of a cgroup it says so (mm/oom_kill.c).
const ofMachine = "Out of memory"

// next is the process that was killed for want of memory of the machine, if that is
// what the message says.
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
