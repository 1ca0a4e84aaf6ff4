package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// transcript reads what tests print with -test.v=test2json, which tells every verdict at once, and shows a line for each that has ended and the
// whole of those that failed or skipped.
type transcript struct {
	out     io.Writer
	machine string
	test    string              // whose output comes
	held    map[string][]string // what was printed of tests that go on, by name
	wrong   []string            // tests that failed or skipped, and what the guest says itself
	done    bool
}

func newTranscript(out io.Writer, machine string) *transcript {
	return &transcript{out: out, machine: machine, held: map[string][]string{}}
}

var (
	marker  = regexp.MustCompile(`^\x16?=== (?:RUN|NAME|CONT|PAUSE)\s+(\S+)`)
	verdict = regexp.MustCompile(`^\s*\x16?--- (PASS|FAIL|SKIP): (\S+) \((.*)\)`)
)

func (t *transcript) line(line string) {
	line = strings.TrimRight(line, "\r\n")
	if m := marker.FindStringSubmatch(line); m != nil {
		t.test = m[1]
		return
	}
	if said, ok := strings.CutPrefix(line, guestPrefix); ok {
		if t.done = said == guestDone; t.done {
			return
		}
		t.wrong = append(t.wrong, said)
		fmt.Fprintln(t.out, line)
		return
	}
	m := verdict.FindStringSubmatch(line)
	if m == nil {
		t.held[t.test] = append(t.held[t.test], line)
		return
	}
	result, name, took := m[1], m[2], m[3]
	parent, script, _ := strings.Cut(name, "/embedded/")
	switch {
	case result != "PASS":
		t.wrong = append(t.wrong, name)
		fmt.Fprintln(t.out, strings.Join(append(t.held[name], strings.Replace(line, "\x16", "", 1)), "\n"))
	case script != "":
		dir := map[string]string{"TestE2E": "e2e/"}[parent]
		fmt.Fprintf(t.out, "ok    %s  %s%s  %s\n", t.machine, dir, script, took)
	case !strings.Contains(name, "/"):
		fmt.Fprintf(t.out, "ok    %s  %s  %s\n", t.machine, name, took)
	}
	delete(t.held, name)
}

// rest shows what is left of a machine that stopped halfway.
func (t *transcript) rest() {
	for name, lines := range t.held {
		fmt.Fprintf(t.out, "--- %s\n%s\n", name, strings.Join(lines, "\n"))
	}
}
