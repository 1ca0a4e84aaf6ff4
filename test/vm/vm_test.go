package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTranscriptShowsPassesInALineAndFailuresInFull(t *testing.T) {
	const console = `=== RUN   TestScript
=== RUN   TestScript/embedded
=== RUN   TestScript/embedded/good
=== RUN   TestScript/embedded/bad
[    9.1] a kernel's word
=== NAME  TestScript/embedded/good
    testscript.go:1: what went well
--- PASS: TestScript/embedded/good (1.50s)
=== NAME  TestE2E/embedded/good
    testscript.go:3: what went well in a cluster
--- PASS: TestE2E/embedded/good (2.50s)
=== NAME  TestScript/embedded/bad
    testscript.go:2: what went wrong
--- FAIL: TestScript/embedded/bad (2.00s)
--- SKIP: TestLonely (0.00s)
vm guest: test.test: exit status 1
vm guest: done
`
	var out bytes.Buffer
	log := newTranscript(&out, "v2")
	for line := range strings.Lines(console) {
		log.line(strings.ReplaceAll(line, "---", "\x16---"))
	}
	const want = `ok    v2  good  1.50s
ok    v2  e2e/good  2.50s
[    9.1] a kernel's word
    testscript.go:2: what went wrong
--- FAIL: TestScript/embedded/bad (2.00s)
--- SKIP: TestLonely (0.00s)
--- no verdict: TestScript
--- no verdict: TestScript/embedded
vm guest: test.test: exit status 1
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("output (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"TestScript/embedded/bad", "TestLonely", "test.test: exit status 1"},
		log.wrong); d != "" || !log.done {
		t.Errorf("done %v, wrong (-want +got):\n%s", log.done, d)
	}
}

func TestLoadOrderPutsDependenciesFirst(t *testing.T) {
	needs := map[string][]string{"overlay": nil, "bridge": {"stp", "llc"}, "stp": {"llc"}, "llc": nil}
	depends := func(name string) ([]string, error) {
		list, ok := needs[name]
		if !ok {
			return nil, errors.New("there is no such file")
		}
		return list, nil
	}
	got, err := loadOrder([]string{"bridge", "overlay", "llc"}, depends)
	if d := cmp.Diff([]string{"llc", "stp", "bridge", "overlay"}, got); d != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, d)
	}
	if _, err := loadOrder([]string{"none"}, depends); err == nil ||
		err.Error() != "module none: there is no such file" {
		t.Errorf("load order of an unknown module: error %v", err)
	}
}

func TestHostShowsWhatItCan(t *testing.T) {
	for host, want := range map[string][]string{
		"v1": {"v2 drift", "v2 resize", "v2 pod/steps/cgroup"}, "v2": {"v1 drift", "v1 resize", "v1 pod/steps/cgroup"},
	} {
		var got []string
		for _, b := range beyond(host, boots()) {
			for _, name := range slices.Concat(b.scripts, b.units) {
				if slices.Contains(anywhere, name) {
					got = append(got, b.machine+" "+name)
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("host with %s (-want +got):\n%s", host, d)
		}
	}
}
