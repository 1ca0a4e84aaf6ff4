package node

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestReadMachineOfFiles(t *testing.T) {
	root := host(t, map[string]string{
		"proc/meminfo":                   "MemTotal: 4194304 kB\nSwapTotal: 1024 kB\n",
		"proc/sys/kernel/hostname":       "Edge-7\n",
		"proc/sys/kernel/osrelease":      "6.1.0-31-amd64\n",
		"proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
		"etc/machine-id":                 "0123456789abcdef0123456789abcdef\n",
		"etc/os-release": "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 " +
			"(bookworm)\"\n",
		"sys/devices/system/cpu/online":                         "0-7\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
	})
	got, err := Read(Config{Host: root, Dir: root, MaxPods: 110, PodsPerCore: 5, Labels: map[string]string{"zone": "a"},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	swap := int64(1 << 20)
	want := Facts{
		Name: "edge-7",
		Labels: map[string]string{
			"kubernetes.io/hostname": "edge-7", "kubernetes.io/os": "linux", "kubernetes.io/arch": runtime.GOARCH,
			"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH, "zone": "a",
		},
		Info: corev1.NodeSystemInfo{
			MachineID: "0123456789abcdef0123456789abcdef", SystemUUID: "0123456789abcdef0123456789abcdef",
			BootID: "11111111-2222-3333-4444-555555555555", KernelVersion: "6.1.0-31-amd64",
			OSImage: "Debian GNU/Linux 12 (bookworm)", OperatingSystem: "linux", Architecture: runtime.GOARCH,
			Swap: &corev1.NodeSwapStatus{Capacity: &swap},
		},
		IPs: got.IPs, Capacity: got.Capacity, Allocatable: got.Allocatable, Usable: got.Usable,
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("facts (-want +got):\n%s", d)
	}
	resources := text(got.Capacity)
	delete(resources, "ephemeral-storage") // depends on the machine of the test
	if d := cmp.Diff(map[string]string{"cpu": "8", "memory": "4Gi", "pods": "40", "hugepages-2Mi": "6Mi"},
		resources); d != "" {
		t.Errorf("capacity (-want +got):\n%s", d)
	}
}

func TestReadThisMachine(t *testing.T) {
	got, err := Read(Config{Name: "Here", Dir: t.TempDir(), MaxPods: 110, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "here" || len(got.IPs) != 1 || !got.IPs[0].IsValid() || got.Info.KernelVersion == "" {
		t.Errorf("name %q, addresses %v, kernel %q", got.Name, got.IPs, got.Info.KernelVersion)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory,
		corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
		if q := got.Allocatable[name]; q.Sign() <= 0 {
			t.Errorf("allocatable %s = %s", name, q.String())
		}
	}
	if bare, err := Read(Config{Name: "here", NoStorage: true, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Error(err)
	} else if _, has := bare.Capacity[corev1.ResourceEphemeralStorage]; has {
		t.Error("the node has ephemeral-storage")
	}
	want := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: got.IPs[0].String()},
		{Type: corev1.NodeHostName, Address: "here"}}
	if d := cmp.Diff(want, got.Addresses()); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
}

func TestReadErrors(t *testing.T) {
	good := map[string]string{"proc/meminfo": "MemTotal: 1 kB", "proc/sys/kernel/hostname": "h"}
	tests := map[string]struct {
		files map[string]string
		set   func(*Config)
		want  string
	}{
		"no meminfo": {map[string]string{"proc/sys/kernel/hostname": "h"}, func(*Config) {}, "MemTotal"},
		"no name": {map[string]string{"proc/meminfo": "MemTotal: 1 kB"}, func(*Config) {},
			"--hostname-override"},
		"no such directory": {good, func(c *Config) { c.Dir = "/nowhere" }, "/nowhere"},
		"an IP of elsewhere": {good, func(c *Config) {
			c.IPs = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
		}, "--node-ip 198.51.100.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := host(t, test.files)
			c := Config{Host: root, Dir: root, Log: slog.New(slog.DiscardHandler)}
			test.set(&c)
			if _, err := Read(c); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
