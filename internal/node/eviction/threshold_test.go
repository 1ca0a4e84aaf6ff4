package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		settings Settings
		want     []Threshold
		errors   []string
	}{
		"nothing": {},
		"hard": {
			settings: Settings{Hard: map[string]string{"nodefs.available": "10%", "memory.available": "100Mi"}},
			want: []Threshold{
				{Signal: MemoryAvailable, Value: Amount{Quantity: 100 << 20, text: "100Mi"}},
				{Signal: NodeFsAvailable, Value: Amount{Share: 0.1}},
			}},
		"pods are limited": {
			settings: Settings{Hard: map[string]string{"memory.available": "1Gi", "pid.available": "5%"},
				MinimumReclaim: map[string]string{"memory.available": "1%"}, Allocatable: true},
			want: []Threshold{
				{Signal: MemoryAvailable, Value: Amount{Quantity: 1 << 30, text: "1Gi"}, Minimum: Amount{Share: 0.01}},
				{Signal: AllocatableMemoryAvailable, Value: Amount{Quantity: 1 << 30, text: "1Gi"},
					Minimum: Amount{Share: 0.01}},
				{Signal: PIDAvailable, Value: Amount{Share: 0.05}},
			}},
		"soft": {
			settings: Settings{Hard: map[string]string{"imagefs.inodesFree": "5%"},
				Soft:            map[string]string{"imagefs.inodesFree": "1k"},
				SoftGracePeriod: map[string]string{"imagefs.inodesFree": "1m30s", "memory.available": "1s"},
				MinimumReclaim:  map[string]string{"imagefs.inodesFree": "0"}},
			want: []Threshold{
				{Signal: ImageFsInodesFree, Value: Amount{Share: 0.05}, Minimum: Amount{text: "0"}},
				{Signal: ImageFsInodesFree, Value: Amount{Quantity: 1000, text: "1k"}, Grace: 90 * time.Second,
					Minimum: Amount{text: "0"}},
			}},
		"none at 0% and 100%": {
			settings: Settings{Hard: map[string]string{"memory.available": "0%", "nodefs.available": "100%"}}},
		"faults": {
			settings: Settings{
				Hard: map[string]string{"cpu": "1", "memory.available": "0", "nodefs.available": "101%",
					"imagefs.available": "-1%", "pid.available": "many", "nodefs.inodesFree": "x%"},
				Soft:            map[string]string{"memory.available": "1Gi"},
				SoftGracePeriod: map[string]string{"nodefs.available": "-1s", "imagefs.available": "soon"},
				MinimumReclaim:  map[string]string{"memory.available": "-1", "nodefs.available": "0%"},
			},
			errors: []string{
				`evictionHard: Unsupported value: "cpu": supported values: "memory.available", ` +
					`"allocatableMemory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", ` +
					`"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available"`,
				`evictionHard[imagefs.available]: Invalid value: "-1%": ` +
					`eviction percentage threshold imagefs.available must be >= 0%: -1%`,
				`evictionHard[memory.available]: Invalid value: "0": ` +
					`eviction threshold memory.available must be positive: 0`,
				`evictionHard[nodefs.available]: Invalid value: "101%": ` +
					`eviction percentage threshold nodefs.available must be <= 100%: 101%`,
				`evictionHard[nodefs.inodesFree]: Invalid value: "x%": "x%" is not a percentage, such as 5%`,
				`evictionHard[pid.available]: Invalid value: "many": "many" is neither a quantity, such as 100Mi, ` +
					`nor a percentage, such as 5%: quantities must match the regular expression ` +
					`'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
				`evictionMinimumReclaim[memory.available]: Invalid value: "-1": ` +
					`negative eviction minimum reclaim specified for memory.available`,
				`evictionMinimumReclaim[nodefs.available]: Invalid value: "0%": ` +
					`eviction percentage minimum reclaim nodefs.available must be positive: 0%`,
				`evictionSoftGracePeriod[imagefs.available]: Invalid value: "soon": time: invalid duration "soon"`,
				`evictionSoftGracePeriod[nodefs.available]: Invalid value: "-1s": ` +
					`invalid eviction grace period specified: -1s, must be a positive value`,
				`evictionSoft[memory.available]: Invalid value: "1Gi": grace period must be specified for the soft ` +
					`eviction threshold memory.available: add it to evictionSoftGracePeriod`,
			}},
	} {
		t.Run(name, func(t *testing.T) {
			got, faults := Parse(test.settings)
			var errors []string
			for _, fault := range faults {
				errors = append(errors, fault.Error())
			}
			if diff := cmp.Diff(test.errors, errors); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(Amount{})); diff != "" && test.errors == nil {
				t.Error(diff)
			}
		})
	}
}

func TestAmount(t *testing.T) {
	for _, test := range []struct {
		amount   Amount
		capacity int64
		want     int64
		text     string
	}{
		{Amount{Quantity: 100 << 20, text: "100Mi"}, 1 << 40, 100 << 20, "100Mi"},
		{Amount{Share: 0.25}, 4 << 30, 1 << 30, "1Gi"},
		{Amount{}, 4 << 30, 0, "0"},
	} {
		if got, text := test.amount.Of(test.capacity), test.amount.String(test.capacity); got != test.want ||
			text != test.text {
			t.Errorf("%+v of %d is %d, %q, want %d, %q", test.amount, test.capacity, got, text, test.want, test.text)
		}
	}
}

func TestDisks(t *testing.T) {
	nodefs := Threshold{Signal: NodeFsAvailable, Value: Amount{Share: 0.1}}
	imagefs := Threshold{Signal: ImageFsAvailable, Value: Amount{Share: 0.15}, Minimum: Amount{Quantity: 1}}
	own := Threshold{Signal: ContainerFsAvailable, Value: Amount{Share: 0.5}}
	as := func(t Threshold) Threshold { t.Signal = ContainerFsAvailable; return t }
	for name, test := range map[string]struct {
		disks      Disks
		thresholds []Threshold
		want       []Threshold
		ignored    []Signal
		parts      map[Signal]Parts
	}{
		"one file system": {
			disks: Disks{"a", "a", "a"}, thresholds: []Threshold{nodefs, imagefs, own},
			want: []Threshold{nodefs, as(nodefs), imagefs}, ignored: []Signal{ContainerFsAvailable},
			parts: map[Signal]Parts{NodeFsAvailable: {true, true, true}, ImageFsAvailable: {true, true, true}},
		},
		"images and layers apart": {
			disks: Disks{"a", "b", "b"}, thresholds: []Threshold{nodefs, imagefs},
			want: []Threshold{nodefs, imagefs, as(imagefs)},
			parts: map[Signal]Parts{NodeFsInodesFree: {LogsAndVolumes: true},
				ImageFsAvailable: {Images: true, Layers: true}, ContainerFsInodesFree: {Images: true, Layers: true}},
		},
		"images apart": {
			disks: Disks{"a", "b", "a"}, thresholds: []Threshold{nodefs, imagefs},
			want: []Threshold{nodefs, as(nodefs), imagefs},
			parts: map[Signal]Parts{NodeFsAvailable: {LogsAndVolumes: true, Layers: true},
				ImageFsInodesFree: {Images: true}, ContainerFsAvailable: {LogsAndVolumes: true, Layers: true},
				MemoryAvailable: {}},
		},
		"three file systems": {
			disks: Disks{"a", "b", "c"}, thresholds: []Threshold{nodefs, imagefs, own},
			want:  []Threshold{nodefs, imagefs, own},
			parts: map[Signal]Parts{ContainerFsAvailable: {Layers: true}, ImageFsAvailable: {Images: true}},
		},
		"three file systems, none for layers": {
			disks: Disks{"a", "b", "c"}, thresholds: []Threshold{nodefs, imagefs},
			want: []Threshold{nodefs, as(nodefs), imagefs},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ignored := test.disks.Complete(test.thresholds)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(Amount{})); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.ignored, ignored); diff != "" {
				t.Error(diff)
			}
			for signal, want := range test.parts {
				if got := test.disks.Parts(signal); got != want {
					t.Errorf("%s: %+v, want %+v", signal, got, want)
				}
			}
		})
	}
}
