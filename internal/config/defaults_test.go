package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/config/kubeletfile"
)

// The default of some fields depends on the value of another field.
func TestDependentDefaults(t *testing.T) {
	type result struct {
		Report   time.Duration
		Serial   bool
		Eviction map[string]string
	}
	with := func(signal, value string) map[string]string {
		all := kubeletfile.Complete(&v1beta1.KubeletConfiguration{}, "", true).EvictionHard
		all[signal] = value
		return all
	}
	none := result{5 * time.Minute, true, kubeletfile.Complete(&v1beta1.KubeletConfiguration{}, "", true).EvictionHard}
	for _, tt := range []struct {
		name, file, dropIn string
		want               result
	}{
		{"nothing said", "", "", none},
		{"updates", "nodeStatusUpdateFrequency: 3s\n", "", result{3 * time.Second, true, none.Eviction}},
		{"updates in a drop-in", "", "nodeStatusUpdateFrequency: 3s\n", none},
		{"parallel pulls", "maxParallelImagePulls: 2\n", "", result{none.Report, false, none.Eviction}},
		{"one threshold", "evictionHard: {memory.available: 5%}\n", "",
			result{none.Report, true, map[string]string{"memory.available": "5%"}}},
		{"no threshold", "evictionHard: {}\n", "", result{none.Report, true, map[string]string{}}},
		{"merged", "evictionHard: {memory.available: 5%}\nmergeDefaultEvictionSettings: true\n", "",
			result{none.Report, true, with("memory.available", "5%")}},
		{"one threshold in a drop-in", "", "evictionHard: {memory.available: 5%}\n",
			result{none.Report, true, with("memory.available", "5%")}},
		{"one of two in a drop-in", "evictionHard: {nodefs.available: 1%}\n", "evictionHard: {memory.available: 5%}\n",
			result{none.Report, true, map[string]string{"nodefs.available": "1%", "memory.available": "5%"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			f := Flags{ConfigFile: filepath.Join(dir, "config.yaml"), ConfigDir: filepath.Join(dir, "d"),
				Kubeconfig: "/k", HostnameOverride: "node"}
			if err := os.Mkdir(f.ConfigDir, 0o755); err != nil {
				t.Fatal(err)
			}
			for path, text := range map[string]string{f.ConfigFile: "failSwapOn: false\nfailCgroupV1: false\n" +
				tt.file, filepath.Join(f.ConfigDir, "a.conf"): tt.dropIn} {
				if err := os.WriteFile(path, []byte(header+text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			c, _, err := Load(f)
			if err != nil {
				t.Fatal(err)
			}
			got := result{c.Cluster.Status.ReportFrequency, *c.Kubelet.SerializeImagePulls, c.Kubelet.EvictionHard}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The defaults refuse some machines. The error names the file that may allow them.
func TestRefusedMachine(t *testing.T) {
	h := host{name: "host", swap: true, cgroupV1: true}
	for name, tt := range map[string]struct {
		flags Flags
		text  string
		want  []string
	}{
		"standalone": {Flags{}, "", nil},
		"joined": {Flags{Kubeconfig: "/k"}, "", []string{
			"failSwapOn: Invalid value: true: swap is on: turn it off (swapoff -a), or write failSwapOn: false into " +
				"the file of --config",
			"failCgroupV1: Invalid value: true: this machine has cgroup v1: boot it with " +
				"systemd.unified_cgroup_hierarchy=1, or write failCgroupV1: false into the file of --config",
		}},
		"allowed": {Flags{Kubeconfig: "/k"}, "failSwapOn: false\nfailCgroupV1: false\n", nil},
		"apart":   {Flags{Kubeconfig: "/k", Apart: true}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			kc, origin := parse(t, tt.text)
			_, errs := build(tt.flags, kc, h)
			if diff := cmp.Diff(tt.want, lines(located(errs, origin))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
