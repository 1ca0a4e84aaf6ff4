package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
)

func TestReadHost(t *testing.T) {
	lowest := int64(-500)
	const root, resource = "0::/\n", "CapEff:\t000001ffffffffff\n"
	const swapV1 = "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"
	cases := []struct {
		name  string
		files map[string]string
		v2    bool
		want  render.Node
		fails string
	}{
		{name: "bare", files: map[string]string{"proc/self/status": resource}},
		{name: "v1", files: map[string]string{swapV1: "", "proc/self/status": resource},
			want: render.Node{SwapController: true}},
		{name: "v2 root", v2: true,
			files: map[string]string{swapV1: "", "proc/self/status": resource, "proc/self/cgroup": root}},
		{name: "v2", v2: true, want: render.Node{SwapController: true},
			files: map[string]string{"proc/self/status": resource,
				"proc/self/cgroup": "0::/system.slice/berth.service\n",
				"sys/fs/cgroup/system.slice/berth.service/memory.swap.max": ""}},
		{name: "everything", files: map[string]string{
			"sys/kernel/mm/hugepages/hugepages-1048576kB/nr": "", "sys/kernel/mm/hugepages/hugepages-2048kB/nr": "",
			"sys/kernel/mm/hugepages/hugepages-64kB/nr":             "",
			"sys/fs/selinux/enforce":                                "1",
			"sys/devices/system/cpu/cpu0/thermal_throttle/count":    "",
			"sys/devices/system/cpu/cpufreq/thermal_throttle/count": "",
			"proc/self/status":                                      "Name:\tberth\nCapEff:\t000001fffeffffff\n",
			"proc/self/oom_score_adj":                               "-500\n",
		}, want: render.Node{HugePages: []string{"64KB", "2MB", "1GB"}, SELinux: true, MinOOMScoreAdj: &lowest,
			MaskedPaths: []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"}}},
		{name: "odd page size", files: map[string]string{"sys/kernel/mm/hugepages/huge/nr": ""},
			fails: `"huge" is not a size`},
		{name: "odd capabilities", files: map[string]string{"proc/self/status": "CapEff: x\n"},
			fails: "find own capabilities"},
		{name: "odd score", files: map[string]string{"proc/self/status": "", "proc/self/oom_score_adj": "x"},
			fails: "find own oom_score_adj"},
		{name: "no status", fails: "find own capabilities"},
		{name: "no score", files: map[string]string{"proc/self/status": ""}, fails: "find own oom_score_adj"},
		{name: "no cgroup", v2: true, fails: "find own cgroup"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := ReadHost(dir, render.Node{CgroupV2: c.v2})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v, want %q", err, c.fails)
				}
				return
			}
			c.want.CgroupV2 = c.v2
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

// ReadHost accepts the real files of this machine.
func TestReadThisHost(t *testing.T) {
	if _, err := ReadHost("/", render.Node{}); err != nil {
		t.Error(err)
	}
}

// The kernel kills the processes of a container together on cgroup v2 only, unless the configuration says otherwise.
func TestNodeOfKillsProcessesTogether(t *testing.T) {
	for name, test := range map[string]struct {
		single *bool
		v2     bool
		want   bool
	}{
		"cgroup v1":          {nil, false, false},
		"cgroup v2":          {nil, true, true},
		"one process only":   {new(true), true, false},
		"explicitly grouped": {new(false), true, true},
	} {
		c := &config.Config{RootDir: "/root", Pods: config.Pods{SingleProcessOOMKill: test.single}}
		want := render.Node{CgroupV2: test.v2, GroupOOMKill: test.want, SeccompRoot: "/root/seccomp"}
		if diff := cmp.Diff(want, nodeOf(c, node.Facts{}, test.v2)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
