package csinode

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWithDriver(t *testing.T) {
	a, b := storagev1.CSINodeDriver{Name: "a", NodeID: "1"}, storagev1.CSINodeDriver{Name: "b", NodeID: "1"}
	full := storagev1.CSINodeDriver{Name: "b", NodeID: "2", TopologyKeys: []string{"x", "z"},
		Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(5))}}
	tests := map[string]struct {
		info *Info
		want []storagev1.CSINodeDriver
	}{
		"another driver": {&Info{NodeID: "2", Limit: 5, Topology: map[string]string{"z": "1", "x": "2"}},
			[]storagev1.CSINodeDriver{a, full}},
		"no limit":       {&Info{NodeID: "1"}, []storagev1.CSINodeDriver{a, b}},
		"driver removed": {nil, []storagev1.CSINodeDriver{a}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, withDriver([]storagev1.CSINodeDriver{a, b}, "b", test.info)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestWithMigration(t *testing.T) {
	list := "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder," +
		"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
	want := map[string]string{"mine": "x", "storage.alpha.kubernetes.io/migrated-plugins": list}
	for name, annotations := range map[string]map[string]string{
		"no list":   {"mine": "x"},
		"old list":  {"mine": "x", "storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"},
		"same list": {"mine": "x", "storage.alpha.kubernetes.io/migrated-plugins": list},
	} {
		if diff := cmp.Diff(want, withMigration(annotations)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestWithNodeID(t *testing.T) {
	for _, test := range []struct {
		text string
		info *Info
		want string
	}{
		{"", &Info{NodeID: "1"}, `{"b":"1"}`},
		{`{"a":"0"}`, &Info{NodeID: "1"}, `{"a":"0","b":"1"}`},
		{`{"a":"0","b":"1"}`, nil, `{"a":"0"}`},
		{`{"b":"1"}`, nil, ""},
		{`null`, &Info{NodeID: "1"}, `{"b":"1"}`},
		{`broken`, &Info{NodeID: "1"}, `{"b":"1"}`},
	} {
		if got := withNodeID(test.text, "b", test.info); got != test.want {
			t.Errorf("%q: %q, want %q", test.text, got, test.want)
		}
	}
}

func TestRefusedTellsPermanentFromTemporary(t *testing.T) {
	nodes := schema.GroupResource{Resource: "csinodes"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"no error": {nil, false},
		"the same zone": {checkLabels(map[string]string{"zone": "a"}, map[string]string{"zone": "a", "rack": "1"}),
			false},
		"another zone": {fmt.Errorf("patch: %w",
			checkLabels(map[string]string{"zone": "a"}, map[string]string{"zone": "b"})), true},
		"forbidden":      {fmt.Errorf("patch: %w", apierrors.NewForbidden(nodes, "n", errors.New("no"))), true},
		"no Node yet":    {apierrors.NewNotFound(nodes, "n"), false},
		"too many":       {apierrors.NewTooManyRequests("wait", 1), false},
		"expired":        {apierrors.NewUnauthorized("who"), false},
		"it is starting": {apierrors.NewServiceUnavailable("starting"), false},
		"no connection":  {errors.New("connection refused"), false},
	} {
		if got := refused(test.err); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	got := []time.Duration{retryDelay(1, 0), retryDelay(3, 0.5), retryDelay(100, 0)}
	if diff := cmp.Diff([]time.Duration{200 * time.Millisecond, 900 * time.Millisecond, 10 * time.Second},
		got); diff != "" {
		t.Errorf("delays:\n%s", diff)
	}
}

func TestCheckLabelsRefusesAnotherTopology(t *testing.T) {
	const want = `detected topology value collision: driver reported "zone":"b" but existing label is "zone":"a"`
	if err := checkLabels(map[string]string{"zone": "a"}, map[string]string{"zone": "b"}); err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
