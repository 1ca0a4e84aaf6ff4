package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// transcript reads the output of tests with -test.v=test2json: the verdict of each test follows its output at once. It
// prints a line for each test that has passed, and the whole output of a test that failed or was skipped.
type transcript struct {
	out     io.Writer
	machine string
	live    bool                // print each line at once
	test    string              // the test whose output follows
	pending map[string][]string // the output of tests that have begun and have no verdict, by name
	wrong   []string            // tests that failed or skipped, and errors of the guest itself
	done    bool
}

func newTranscript(out io.Writer, machine string) *transcript {
	return &transcript{out: out, machine: machine, pending: map[string][]string{}}
}

var (
	marker  = regexp.MustCompile(`^\x16?=== (?:RUN|NAME|CONT|PAUSE)\s+(\S+)`)
	verdict = regexp.MustCompile(`^\s*\x16?--- (PASS|FAIL|SKIP): (\S+) \((.*)\)`)
)

func (t *transcript) line(line string) {
	line = strings.TrimRight(line, "\r\n")
	if m := marker.FindStringSubmatch(line); m != nil {
		t.test = m[1]
		if _, known := t.pending[t.test]; !known {
			t.pending[t.test] = nil
		}
		return
	}
	if message, ok := strings.CutPrefix(line, guestPrefix); ok {
		if t.done = message == guestDone; t.done {
			return
		}
		t.wrong = append(t.wrong, message)
		t.rest() // a program that crashed has given no verdict
		clear(t.pending)
		fmt.Fprintln(t.out, line)
		return
	}
	m := verdict.FindStringSubmatch(line)
	if t.live {
		fmt.Fprintln(t.out, line)
	}
	if m == nil {
		t.pending[t.test] = append(t.pending[t.test], line)
		return
	}
	result, name, took := m[1], m[2], m[3]
	parent, script, _ := strings.Cut(strings.Replace(name, "/containerd/", "/embedded/", 1), "/embedded/")
	switch {
	case result != "PASS":
		t.wrong = append(t.wrong, name)
		fmt.Fprintln(t.out, strings.Join(append(t.pending[name], strings.Replace(line, "\x16", "", 1)), "\n"))
	case script != "":
		dir := map[string]string{"TestE2E": "e2e/"}[parent]
		fmt.Fprintf(t.out, "ok    %s  %s%s  %s\n", t.machine, dir, script, took)
	case !strings.Contains(name, "/"):
		fmt.Fprintf(t.out, "ok    %s  %s  %s\n", t.machine, name, took)
	}
	delete(t.pending, name)
}

// rest prints which tests have no verdict, and their output.
func (t *transcript) rest() {
	if t.live {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(t.pending)) {
		fmt.Fprintln(t.out, strings.Join(append([]string{"--- no verdict: " + name}, t.pending[name]...), "\n"))
	}
}
