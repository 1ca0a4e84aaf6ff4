package record

import (
	"os"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	bundle := t.TempDir()
	made := Container{
		Version: Version, Boot: "b", Namespace: "k8s.io", ID: "c", Bundle: bundle, OOMKills: 2,
		Cgroups: map[string]string{"memory": "/pods/c"},
		Init:    Process{Phase: Running, Pid: 7, Started: 9, Stdout: "out", InputClosed: true},
	}
	if err := made.Write(); err != nil {
		t.Fatal(err)
	}
	read, err := Read(File(bundle))
	if err != nil || read.Init != made.Init || read.OOMKills != 2 || read.Cgroups["memory"] != "/pods/c" {
		t.Errorf("read %+v, %v, want %+v", read, err, made)
	}
	made.Version++
	if err := made.Write(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(File(bundle)); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("read a record of a later version: %v", err)
	}
	if err := os.WriteFile(File(bundle), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(File(bundle)); err == nil || !strings.Contains(err.Error(), bundle) {
		t.Errorf("read a damaged record: %v", err)
	}
}

func TestHasStarted(t *testing.T) {
	for name, one := range map[string]struct {
		process Process
		started bool
	}{
		"waits":             {Process{Phase: Created, Pid: 7}, false},
		"runs":              {Process{Phase: Running, Pid: 7}, true},
		"ended":             {Process{Phase: Exited, Pid: 7}, true},
		"ended as it was":   {Process{Phase: Exited, Pid: 7, NeverRan: true}, false},
		"could not execute": {Process{Phase: Exited}, false},
	} {
		if got := one.process.HasStarted(); got != one.started {
			t.Errorf("%s: has started is %v", name, got)
		}
	}
}
