package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// A container that is being created or discarded is neither found nor created until that is over. Others are.
func TestRegistryWaitsForOneContainer(t *testing.T) {
	r := newRegistry(func() {})
	if err := r.reserve("discarded"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.find("other"); err == nil {
		t.Error("found a container that does not exist")
	}
	reserved, found := make(chan error), make(chan error)
	go func() { reserved <- r.reserve("discarded") }()
	select {
	case err := <-reserved:
		t.Fatalf("reserved a container that is being discarded: %v", err)
	default:
	}
	r.set("discarded", nil)
	if err := <-reserved; err != nil {
		t.Error(err)
	}
	go func() {
		_, err := r.find("discarded")
		found <- err
	}()
	r.set("discarded", &container{})
	if err := <-found; err != nil {
		t.Error(err)
	}
	if err := r.reserve("discarded"); !errdefs.IsAlreadyExists(err) {
		t.Errorf("reserved a container that exists: %v", err)
	}
}

func TestRegistryEndsOnlyWhenEmpty(t *testing.T) {
	ends := 0
	r := newRegistry(func() { ends++ })
	r.idle.Stop()
	if err := r.reserve("c"); err != nil {
		t.Fatal(err)
	}
	r.endIfEmpty()
	r.set("c", &container{})
	r.endIfEmpty()
	if ends != 0 {
		t.Error("the shim ends although it has a container")
	}
	r.set("c", nil)
	r.idle.Stop()
	ends = 0
	if r.endIfEmpty(); ends != 1 {
		t.Errorf("the shim without containers ended %d times", ends)
	}
	if err := r.reserve("late"); !errors.Is(err, errEnding) {
		t.Errorf("reserved a container in a shim that ends: %v", err)
	}
}

func TestRecords(t *testing.T) {
	bundle := t.TempDir()
	made := record{
		Version: recordVersion, Boot: "b", Namespace: "k8s.io", ID: "c", Bundle: bundle, OOMKills: 2,
		Cgroups: map[string]string{"memory": "/pods/c"},
		Init:    processRecord{Phase: phaseRunning, Pid: 7, Started: 9, Stdout: "out", InputClosed: true},
	}
	if err := made.write(); err != nil {
		t.Fatal(err)
	}
	read, err := readRecord(recordFile(bundle))
	if err != nil || read.Init != made.Init || read.OOMKills != 2 || read.Cgroups["memory"] != "/pods/c" {
		t.Errorf("read %+v, %v, want %+v", read, err, made)
	}
	made.Version++
	if err := made.write(); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecord(recordFile(bundle)); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("read a record of a later version: %v", err)
	}
	if err := os.WriteFile(recordFile(bundle), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecord(recordFile(bundle)); err == nil || !strings.Contains(err.Error(), bundle) {
		t.Errorf("read a damaged record: %v", err)
	}
	c := container{record: made}
	for range 2 {
		if err := c.removeRecord(); err != nil {
			t.Errorf("remove a record, or one that is gone: %v", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.save(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(recordFile(bundle)); err == nil {
		t.Error("a late change has written the record again")
	}
}

func TestContinuingDropsInheritedDescriptors(t *testing.T) {
	got := continuing([]string{"/bin/shim", "serve", "-tasks=/t", "-ready=3", "-outputs=9", "-events=/e", "c1", "c2"},
		[]int{7, 8})
	if want := []string{"/bin/shim", "serve", "-tasks=/t", "-events=/e", "-outputs=7,8"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
