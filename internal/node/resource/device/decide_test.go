package device

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

const gpu corev1.ResourceName = "example.com/gpu"

func on(ids ...int) topology.Nodes { return topology.Of(ids...) }

func hint(preferred bool, ids ...int) topology.Hint {
	return topology.Hint{Nodes: on(ids...), Preferred: preferred}
}

// four has two devices on each of two nodes.
var four = []Device{
	{ID: "a", Healthy: true, Nodes: on(0)}, {ID: "b", Healthy: true, Nodes: on(0)},
	{ID: "c", Healthy: true, Nodes: on(1)}, {ID: "d", Healthy: true, Nodes: on(1)},
}

func ill(devices []Device, ids ...ID) []Device {
	devices = slices.Clone(devices)
	for i := range devices {
		devices[i].Healthy = devices[i].Healthy && !slices.Contains(ids, devices[i].ID)
	}
	return devices
}

func TestHints(t *testing.T) {
	tests := []struct {
		name           string
		devices        []Device
		held, reusable []ID
		count          int
		want           []topology.Hint
	}{
		{"a plugin without topology", []Device{{ID: "a", Healthy: true}}, nil, nil, 1, nil},
		{"no plugin", nil, nil, nil, 1, nil},
		{"one device", four, nil, nil, 1, []topology.Hint{hint(true, 0), hint(true, 1), hint(false, 0, 1)}},
		{"several nodes", four, nil, nil, 3, []topology.Hint{hint(true, 0, 1)}},
		{"too many devices", four, nil, nil, 5, []topology.Hint{}},
		{"a held device", four, []ID{"a"}, nil, 2, []topology.Hint{hint(true, 1), hint(false, 0, 1)}},
		{"held devices force two nodes", four, []ID{"a", "c"}, nil, 2, []topology.Hint{hint(false, 0, 1)}},
		{"unhealthy", ill(four, "a"), nil, nil, 2, []topology.Hint{hint(true, 1), hint(false, 0, 1)}},
		{"reusable", four, []ID{"a", "c"}, []ID{"c"}, 2, []topology.Hint{hint(true, 1), hint(false, 0, 1)}},
		{"fewer devices than reusable", four, []ID{"a", "c"}, []ID{"a", "c"}, 1,
			[]topology.Hint{hint(true, 0), hint(true, 1), hint(false, 0, 1)}},
		{"all reusable devices", four, []ID{"a", "c"}, []ID{"a", "c"}, 2, []topology.Hint{hint(false, 0, 1)}},
		{"a device close to two nodes",
			[]Device{{ID: "x", Healthy: true, Nodes: on(0, 1)}, {ID: "y", Healthy: true, Nodes: on(1)}},
			nil, nil, 2, []topology.Hint{hint(true, 1), hint(false, 0, 1)}},
		{"nodes with gaps", []Device{{ID: "x", Healthy: true, Nodes: on(3)}, {ID: "y", Healthy: true, Nodes: on(40)}},
			nil, nil, 2, []topology.Hint{hint(true, 3, 40)}},
		{"devices without nodes do not count",
			[]Device{{ID: "x", Healthy: true, Nodes: on(1)}, {ID: "y", Healthy: true}},
			nil, nil, 2, []topology.Hint{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inv, held := Inventory{gpu: tt.devices}, Held{gpu: sets.New(tt.held...)}
			got := Hints(inv, held, Request{Resource: gpu, Count: tt.count, Reusable: sets.New(tt.reusable...)})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A resource on very many nodes gets an answer in short time.
func TestHintsOfManyNodes(t *testing.T) {
	var devices []Device
	for i := range 36 {
		devices = append(devices, Device{ID: fmt.Sprintf("%02d", i), Healthy: true, Nodes: on(i)})
	}
	got := Hints(Inventory{gpu: devices}, nil, Request{Resource: gpu, Count: 30})
	var all topology.Nodes
	for i := range 36 {
		all |= on(i)
	}
	if diff := cmp.Diff([]topology.Hint{{Nodes: all, Preferred: true}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPick(t *testing.T) {
	mixed := append(slices.Clone(four), Device{ID: "0", Healthy: true}, Device{ID: "e", Healthy: true, Nodes: on(0, 1)})
	tests := []struct {
		name           string
		devices        []Device
		held, reusable []ID
		count          int
		on             topology.Nodes
		want           []ID
	}{
		{"any", four, nil, nil, 1, 0, []ID{"a"}},
		{"any, in order", four, []ID{"a"}, nil, 2, 0, []ID{"b", "c"}},
		{"aligned", four, nil, nil, 2, on(1), []ID{"c", "d"}},
		{"then other nodes", four, []ID{"c"}, nil, 2, on(1), []ID{"a", "d"}},
		{"wholly before partly near", mixed, nil, nil, 3, on(1), []ID{"c", "d", "e"}},
		{"all, devices without nodes included", mixed, nil, nil, 6, on(1), []ID{"0", "a", "b", "c", "d", "e"}},
		{"devices without nodes last", mixed, nil, nil, 5, on(1), []ID{"a", "b", "c", "d", "e"}},
		{"reusable first", four, []ID{"b", "c"}, []ID{"b"}, 1, on(1), []ID{"b"}},
		{"aligned among the reusable", four, []ID{"b", "c"}, []ID{"b", "c"}, 1, on(1), []ID{"c"}},
		{"unhealthy devices are left out", ill(four, "a", "b"), nil, nil, 1, on(0), []ID{"c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Request{Resource: gpu, Count: tt.count, Reusable: sets.New(tt.reusable...)}
			got, err := Pick(Inventory{gpu: tt.devices}, Held{gpu: sets.New(tt.held...)}, r, tt.on)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestPickRejects(t *testing.T) {
	tests := []struct {
		name string
		inv  Inventory
		want string
	}{
		{"unregistered", nil, "cannot allocate unregistered device example.com/gpu"},
		{"unhealthy", Inventory{gpu: ill(four, "a", "b", "c", "d")},
			"no healthy devices present; cannot allocate unhealthy devices example.com/gpu"},
		{"held", Inventory{gpu: four},
			"requested number of devices unavailable for example.com/gpu. Requested: 4, Available: 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Pick(tt.inv, Held{gpu: sets.New("a")}, Request{Resource: gpu, Count: 4}, 0)
			want := reason.New("UnexpectedAdmissionError", "Allocate failed due to %s, which is unexpected", tt.want)
			if reason.Of(err) != want.Reason || reason.Message(err) != want.Message() {
				t.Errorf("got  %v\nwant %v", err, want)
			}
		})
	}
}

func TestPrefer(t *testing.T) {
	tests := []struct {
		name                             string
		held, reusable, given, preferred []ID
		want, available, must            []ID
	}{
		{"as given", nil, nil, []ID{"a"}, nil, []ID{"a"}, []ID{"a", "b"}, nil},
		{"on the same node", []ID{"a"}, nil, []ID{"a"}, []ID{"b"}, []ID{"b"}, []ID{"a", "b"}, nil},
		{"on another node", []ID{"a"}, nil, []ID{"a"}, []ID{"c"}, []ID{"a"}, []ID{"a", "b"}, nil},
		{"held by another", []ID{"a", "b"}, nil, []ID{"a"}, []ID{"b"}, []ID{"a"}, []ID{"a"}, nil},
		{"reusable stays", []ID{"a"}, []ID{"a"}, []ID{"a"}, []ID{"b"}, []ID{"a"}, []ID{"a"}, []ID{"a"}},
		{"one of two", []ID{"a", "c"}, nil, []ID{"a", "c"}, []ID{"a", "d"}, []ID{"a", "d"}, []ID{"a", "b", "c", "d"},
			nil},
		{"more than given", []ID{"a"}, nil, []ID{"a"}, []ID{"a", "b"}, []ID{"a"}, []ID{"a", "b"}, nil},
		{"unknown", []ID{"a"}, nil, []ID{"a"}, []ID{"zz"}, []ID{"a"}, []ID{"a", "b"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inv, held := Inventory{gpu: four}, Held{gpu: sets.New(tt.held...)}
			r := Request{Resource: gpu, Count: len(tt.given), Reusable: sets.New(tt.reusable...)}
			available, must := Choice(inv, held, r, tt.given)
			got := Prefer(inv, held, r, tt.given, tt.preferred)
			if diff := cmp.Diff([][]ID{tt.want, tt.available, tt.must}, [][]ID{got, available, must}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	inv := Inventory{gpu: ill(four, "a"), "example.com/lost": {}}
	list := func(a, b string) corev1.ResourceList {
		return corev1.ResourceList{gpu: resource.MustParse(a), "example.com/lost": resource.MustParse(b)}
	}
	equal := cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
	if diff := cmp.Diff([]corev1.ResourceList{list("4", "0"), list("3", "0")},
		[]corev1.ResourceList{inv.Capacity(), inv.Allocatable()}, equal); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	asked := inv.Requests(corev1.ResourceList{gpu: resource.MustParse("2"), "example.com/lost": resource.MustParse("0"),
		"cpu": resource.MustParse("1")})
	if diff := cmp.Diff(map[corev1.ResourceName]int{gpu: 2}, asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// machine returns a random inventory with some devices held and some of those reusable.
func machine(r *rand.Rand) (Inventory, Held, Request) {
	nodes, held, reusable := 1+r.IntN(8), sets.New[ID](), sets.New[ID]()
	var devices []Device
	for i := range 1 + r.IntN(16) {
		d := Device{ID: fmt.Sprintf("d%02d", i), Healthy: r.IntN(8) > 0, Nodes: on(r.IntN(nodes))}
		switch r.IntN(6) {
		case 0:
			d.Nodes |= on(r.IntN(nodes))
		case 1:
			held.Insert(d.ID)
			reusable.Insert(d.ID)
		case 2:
			held.Insert(d.ID)
		case 3:
			d.Nodes &= on(0, 1, 2, 3)
		}
		devices = append(devices, d)
	}
	return Inventory{gpu: devices}, Held{gpu: held}, Request{Resource: gpu, Count: 1 + r.IntN(4), Reusable: reusable}
}

// Pick returns free and healthy devices, exactly as many as requested, on the nodes of any hint. The answer does not
// depend on the order of the plugin's device list.
func TestPickFollowsHints(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		inv, held, ask := machine(r)
		byID := map[ID]Device{}
		for _, d := range inv[gpu] {
			byID[d.ID] = d
		}
		for _, h := range append(Hints(inv, held, ask), topology.Hint{}) {
			got, err := Pick(inv, held, ask, h.Nodes)
			if err != nil {
				if h.Nodes != 0 {
					t.Fatalf("hint %v cannot be kept: %v\n%v %v %v", h, err, inv, held, ask)
				}
				continue
			}
			if len(got) != ask.Count || sets.New(got...).Len() != ask.Count {
				t.Fatalf("requested %d devices, got %v", ask.Count, got)
			}
			for _, id := range got {
				d := byID[id]
				if !d.Healthy || held[gpu].Has(id) && !ask.Reusable.Has(id) {
					t.Fatalf("device %s cannot be allocated\n%v %v %v", id, inv, held, ask)
				}
				if h.Nodes != 0 && d.Nodes&h.Nodes == 0 && !ask.Reusable.Has(id) {
					t.Fatalf("%v is not on %v\n%v %v %v", d, h, inv, held, ask)
				}
			}
			shuffled := slices.Clone(inv[gpu])
			r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			again, err := Pick(Inventory{gpu: shuffled}, held, ask, h.Nodes)
			if diff := cmp.Diff(got, again); diff != "" || err != nil {
				t.Fatalf("the answer depends on the order of devices (%v):\n%s", err, diff)
			}
		}
	}
}

// Whatever a plugin prefers, the container keeps as many devices on the same nodes and gets none that others hold.
func TestPreferStaysOnTheSameNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		inv, held, ask := machine(r)
		given, err := Pick(inv, held, ask, 0)
		if err != nil {
			continue
		}
		foreign := held[gpu].Difference(ask.Reusable).Difference(sets.New(given...))
		held[gpu].Insert(given...)
		var preferred []ID
		for _, d := range inv[gpu] {
			if r.IntN(2) == 0 {
				preferred = append(preferred, d.ID)
			}
		}
		got := Prefer(inv, held, ask, given, preferred)
		nodes := func(ids []ID) (all []topology.Nodes) {
			for _, d := range inv[gpu] {
				if slices.Contains(ids, d.ID) {
					all = append(all, d.Nodes)
				}
			}
			slices.Sort(all)
			return all
		}
		if diff := cmp.Diff(nodes(given), nodes(got)); diff != "" {
			t.Fatalf("the nodes changed:\n%s", diff)
		}
		if taken := foreign.Intersection(sets.New(got...)); taken.Len() > 0 {
			t.Fatalf("%v are held by others", taken)
		}
	}
}

func BenchmarkHints(b *testing.B) {
	for _, nodes := range []int{1, 2, 4, 8, 16} {
		var devices []Device
		for i := range nodes * 4 {
			devices = append(devices, Device{ID: fmt.Sprintf("%02d", i), Healthy: true, Nodes: on(i % nodes)})
		}
		inv := Inventory{gpu: devices}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				Hints(inv, nil, Request{Resource: gpu, Count: 2})
			}
		})
	}
}
