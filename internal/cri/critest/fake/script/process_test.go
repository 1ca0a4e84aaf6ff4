package script

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestProcess(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := &runtimeapi.ContainerConfig{
		WorkingDir: "/data",
		Envs:       []*runtimeapi.KeyValue{{Key: "NAME", Value: []byte("value")}},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: dir},
			{ContainerPath: "/ro", HostPath: dir, Readonly: true}},
	}
	type result struct {
		Waits       []time.Duration
		Code        int32
		Out, Errors string
		Term        int32 // TermCode
	}
	for args, want := range map[string]result{
		"print a b then error c":            {Out: "a\nb\n", Errors: "c\n", Term: 2},
		"exit 4":                            {Code: 4, Term: 2},
		"exit 4 1s then print never":        {Waits: []time.Duration{time.Second}, Code: 4, Term: 2},
		"wait 1s then print a then sleep 3": {Waits: []time.Duration{time.Second, Forever}, Out: "a\n", Term: 3},
		"false then print never":            {Code: 1, Term: 2},
		"env NAME NONE":                     {Out: "value\n\n", Term: 2},
		"cat file then write new x":         {Out: "content\n", Term: 2},
		"write /ro/no x": {Code: 1, Errors: "workload: open /ro/no: read-only file system\n",
			Term: 2},
		"exists /etc/passwd": {Code: 1, Errors: "workload: open /etc/passwd: no such file or directory\n", Term: 2},
		"log 20 3 3":         {Waits: []time.Duration{logPeriod}, Out: "000\n001\n002\n", Term: 0},
		"wait":               {Code: 1, Errors: "workload: usage: workload ACTION [ARG...] [then ACTION]\n", Term: 2},
		"juggle":             {Code: 1, Errors: "workload: action \"juggle\" is not supported by the fake\n", Term: 2},
	} {
		var out, errs strings.Builder
		p, err := New(append([]string{"/workload"}, strings.Fields(args)...), config, &out, &errs)
		if err != nil {
			t.Fatal(err)
		}
		var got result
		for {
			wait, ended, code := p.Advance()
			if ended {
				got.Code = code
				break
			}
			if got.Waits = append(got.Waits, wait); wait == Forever {
				break
			}
		}
		got.Out, got.Errors, got.Term = out.String(), errs.String(), p.TermCode
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "new")); string(got) != "x\n" {
		t.Errorf("file written by the workload: %q, %v", got, err)
	}
}
