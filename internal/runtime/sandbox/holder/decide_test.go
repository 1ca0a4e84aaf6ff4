package holder

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStepsJoinNamespacesBeforeTheyDropPrivileges(t *testing.T) {
	sysctls := []Sysctl{{"net/ipv4/ip_forward", "1"}}
	for name, test := range map[string]struct {
		of   Namespaces
		want []string
	}{
		"all": {Namespaces{IPC: true, UTS: true, PID: true, Network: true, User: true},
			[]string{"n4", "n6", "r", "n7", "u201326592", "hname", "wnet/ipv4/ip_forward=1", "f536870912", "i65535"}},
		"without user namespace": {Namespaces{IPC: true, UTS: true, PID: true, Network: true},
			[]string{"n4", "n6", "u201326592", "hname", "wnet/ipv4/ip_forward=1", "f536870912", "i65535"}},
		"in the host's": {Namespaces{}, []string{"n4", "wnet/ipv4/ip_forward=1", "f0", "i65535"}},
	} {
		got, actions := steps(test.of, "name", sysctls)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(actions) != len(got) {
			t.Errorf("%s: %d steps have %d actions", name, len(got), len(actions))
		}
	}
}

func TestSysctlsOfRefusesSysctlsOfTheHost(t *testing.T) {
	all := Namespaces{IPC: true, UTS: true, PID: true, Network: true}
	for name, test := range map[string]struct {
		of    Namespaces
		named map[string]string
		want  []Sysctl
		err   string
	}{
		"sorted": {all,
			map[string]string{"net.core.somaxconn": "9", "kernel.shm_rmid_forced": "1", "fs/mqueue/msg_max": "2"},
			[]Sysctl{{"fs/mqueue/msg_max", "2"}, {"kernel/shm_rmid_forced", "1"}, {"net/core/somaxconn", "9"}}, ""},
		"interface with a dot": {all, map[string]string{"net.ipv4.conf.eth0/1.forwarding": "1"},
			[]Sysctl{{"net/ipv4/conf/eth0.1/forwarding", "1"}}, ""},
		"no namespace": {all, map[string]string{"vm.swappiness": "1"}, nil, "belongs to no namespace"},
		"host's network": {Namespaces{IPC: true}, map[string]string{"net.core.somaxconn": "9"}, nil,
			"no network namespace"},
		"host's IPC":  {Namespaces{UTS: true}, map[string]string{"kernel.sem": "9"}, nil, "no IPC namespace"},
		"host's name": {Namespaces{}, map[string]string{"kernel.domainname": "x"}, nil, "no UTS namespace"},
		"upwards":     {all, map[string]string{"net/../vm/swappiness": "1"}, nil, "forbidden characters"},
		"assignment":  {all, map[string]string{"net.x=1": "1"}, nil, "forbidden characters"},
		"ends early":  {all, map[string]string{"net.x": "1\x00"}, nil, "forbidden characters"},
	} {
		got, err := SysctlsOf(test.named, test.of)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: error %v, want %q", name, err, test.err)
		}
	}
}

func TestStartOfSkipsTheNameOfTheProgram(t *testing.T) {
	got, err := startOf("12 (a ) b) S 1 12 12 0 -1 4194624 0 0 0 0 0 0 0 0 20 0 1 0 4242 1 1")
	if err != nil || got != 4242 {
		t.Errorf("start time %d (%v), want 4242", got, err)
	}
	if _, err := startOf("12 (a) S 1"); err == nil {
		t.Error("no error for a text that ends early")
	}
}
