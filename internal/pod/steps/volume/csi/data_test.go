package csi

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/roottest"
)

// The driver is called after the save. If the power fails then, the next agent must know which driver to call.
func TestSavedDataSurvivesAPowerCut(t *testing.T) {
	disk, powerCut := roottest.Disk(t)
	dir := filepath.Join(disk, "pods/uid/volumes/csi/pv")
	want := data{SpecName: "pv", Handle: "vol", Driver: driverName1, Node: "node-1", Mode: "Persistent"}
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	powerCut()
	got, ok, err := load(dir)
	if diff := cmp.Diff(want, got); diff != "" || !ok || err != nil {
		t.Errorf("found %t, error %v (-want +got):\n%s", ok, err, diff)
	}
}
