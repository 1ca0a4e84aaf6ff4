package node

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/node/eviction"
)

// text makes resource lists readable and comparable.
func text(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestAfterReserved(t *testing.T) {
	machine := Capacity{CPUs: 4, MemoryBytes: 8 << 30, StorageBytes: 100 << 30,
		HugePages: map[int64]int64{2 << 20: 512, 1 << 30: 0}, Pods: 110}.Resources()
	tests := map[string]struct {
		reserved            Reserved
		allocatable, usable map[string]string
	}{
		"nothing reserved: memory without huge pages": {
			allocatable: map[string]string{"cpu": "4", "memory": "7Gi", "ephemeral-storage": "100Gi", "pods": "110",
				"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"},
			usable: map[string]string{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110",
				"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"},
		},
		"both reservations and the thresholds": {
			reserved: Reserved{
				Kube: list("cpu", "500m", "memory", "1Gi"), System: list("cpu", "1", "ephemeral-storage", "10Gi"),
				Thresholds: thresholds(eviction.Settings{
					Hard: map[string]string{"memory.available": "1Gi", "nodefs.available": "10%",
						"nodefs.inodesFree": "5%", "imagefs.available": "15%"},
					Soft:            map[string]string{"memory.available": "2Gi"},
					SoftGracePeriod: map[string]string{"memory.available": "1m"}, Allocatable: true}),
			},
			// 10% of the storage are 160 bytes more: the kubelet, too, has 32 bits for the percentage.
			allocatable: map[string]string{"cpu": "2500m", "memory": "5Gi", "ephemeral-storage": "85899345760",
				"pods": "110", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"},
			usable: map[string]string{"cpu": "2500m", "memory": "7Gi", "ephemeral-storage": "90Gi", "pods": "110",
				"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"},
		},
		"a threshold of everything is none": {
			reserved: Reserved{Thresholds: thresholds(eviction.Settings{
				Hard: map[string]string{"memory.available": "100%", "nodefs.available": "0%"}})},
			allocatable: map[string]string{"cpu": "4", "memory": "7Gi", "ephemeral-storage": "100Gi", "pods": "110",
				"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"},
			usable: map[string]string{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110",
				"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"},
		},
		"more reserved than there is": {
			reserved: Reserved{Kube: list("cpu", "8", "memory", "9Gi")},
			allocatable: map[string]string{"cpu": "0", "memory": "0", "ephemeral-storage": "100Gi", "pods": "110",
				"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"},
			usable: map[string]string{"cpu": "0", "memory": "0", "ephemeral-storage": "100Gi", "pods": "110",
				"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			allocatable, usable := afterReserved(machine, test.reserved)
			if d := cmp.Diff(test.allocatable, text(allocatable)); d != "" {
				t.Errorf("allocatable (-want +got):\n%s", d)
			}
			if d := cmp.Diff(test.usable, text(usable)); d != "" {
				t.Errorf("usable (-want +got):\n%s", d)
			}
		})
	}
}

// thresholds parses valid settings.
func thresholds(s eviction.Settings) []eviction.Threshold {
	all, _ := eviction.Parse(s)
	return all
}

func TestMaxPods(t *testing.T) {
	for _, test := range []struct {
		limit, perCore int32
		cpus           int
		want           int64
	}{{110, 0, 2, 110}, {110, 10, 2, 20}, {110, 100, 2, 110}} {
		if got := maxPods(test.limit, test.perCore, test.cpus); got != test.want {
			t.Errorf("maxPods(%d, %d, %d) = %d, want %d", test.limit, test.perCore, test.cpus, got, test.want)
		}
	}
}

func TestCountCPUs(t *testing.T) {
	for in, want := range map[string]int{"0": 1, "0-3": 4, "0-3,8,10-11\n": 7} {
		if got, err := countCPUs(in); err != nil || got != want {
			t.Errorf("countCPUs(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "a", "3-1", "0,", "1-"} {
		if n, err := countCPUs(bad); err == nil {
			t.Errorf("countCPUs(%q) = %d, want an error", bad, n)
		}
	}
}

func TestParseMemory(t *testing.T) {
	got, err := parseMemory("MemTotal:       24684092 kB\nSwapTotal:             8 kB\nHugePages_Total:       0\n")
	if want := (memory{total: 24684092 << 10, swap: 8 << 10}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := parseMemory("MemFree: 1 kB\n"); err == nil {
		t.Error("no MemTotal: no error")
	}
}

func TestCheckIP(t *testing.T) {
	host := []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("127.0.0.1"),
		netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fe80::1")}
	for text, ok := range map[string]bool{
		"192.0.2.2": true, "fd00::2": true,
		"127.0.0.1": false, "fe80::1": false, "224.0.0.1": false, "192.0.2.3": false,
	} {
		if err := checkIP(netip.MustParseAddr(text), host); (err == nil) != ok {
			t.Errorf("checkIP(%s) = %v, want ok %v", text, err, ok)
		}
	}
	if got := fallback(host[1:]); got != netip.MustParseAddr("fd00::2") {
		t.Errorf("fallback = %v", got)
	}
	if got := fallback(nil); got != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("fallback of a machine without a network = %v", got)
	}
}
