package nfs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/mount"
)

func TestCalls(t *testing.T) {
	const target = "/t"
	base := want{server: "files", path: "/srv", address: netip.MustParseAddr("10.0.0.1"),
		local: netip.MustParseAddr("10.0.0.9")}
	call := func(flags uintptr, data string) mount.Call {
		return mount.Call{Source: "files:/srv", Target: target, Type: "nfs", Flags: flags, Data: data}
	}
	v4 := func(version string) mount.Call {
		return call(0, "vers="+version+",addr=10.0.0.1,clientaddr=10.0.0.9")
	}
	tests := []struct {
		name string
		want func(*want)
		list []mount.Call
		err  string
	}{
		{"the newest version first", func(w *want) {
			w.statd = true
		}, []mount.Call{v4("4.2"), v4("4.1"), v4("4.0"), call(0, "vers=3,addr=10.0.0.1,mountaddr=10.0.0.1")}, ""},
		{"locks of version 3 without rpc.statd", func(*want) {}, []mount.Call{v4("4.2"), v4("4.1"), v4("4.0")},
			"needs rpc.statd"},
		{"a version", func(w *want) { w.options = []string{"nfsvers=4.1"} }, []mount.Call{v4("4.1")}, ""},
		{"version 4", func(w *want) { w.options = []string{"v4"} }, []mount.Call{v4("4.2"), v4("4.1"), v4("4.0")}, ""},
		{"a minor version", func(w *want) {
			w.options = []string{"vers=4", "minorversion=0"}
		}, []mount.Call{v4("4.0")}, ""},
		{"version 3 with locks of its own", func(w *want) {
			w.options = []string{"vers=3", "nolock"}
		}, []mount.Call{call(0, "vers=3,addr=10.0.0.1,mountaddr=10.0.0.1,nolock")}, ""},
		{"read-only", func(w *want) {
			w.options, w.readOnly = []string{"v4.2"}, true
		}, []mount.Call{call(unix.MS_RDONLY, "vers=4.2,addr=10.0.0.1,clientaddr=10.0.0.9")}, ""},
		{"options of all kinds", func(w *want) {
			w.options = []string{"v4.2", "hard,noatime", "retry=2", "rsize=1048576", "addr=1.2.3.4"}
		},
			[]mount.Call{call(unix.MS_NOATIME, "vers=4.2,addr=10.0.0.1,clientaddr=10.0.0.9,hard,rsize=1048576")}, ""},
		{"IPv6", func(w *want) {
			w.server, w.options = "fd00::1", []string{"v4.2"}
			w.address, w.local = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::9")
		}, []mount.Call{{Source: "[fd00::1]:/srv", Target: target, Type: "nfs",
			Data: "vers=4.2,addr=fd00::1,clientaddr=fd00::9"}}, ""},
		{"in the background", func(w *want) { w.options = []string{"bg"} }, nil, "mount option bg"},
		{"Kerberos", func(w *want) { w.options = []string{"sec=krb5p"} }, nil, "does not support Kerberos"},
		{"unknown version", func(w *want) { w.options = []string{"nfsvers=5"} }, nil, "NFS version 5"},
		{"version 2", func(w *want) { w.options = []string{"v2"} }, nil, "NFS version 2"},
		{"unknown option", func(w *want) { w.options = []string{"bind"} }, nil, `mount option "bind"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := base
			test.want(&w)
			list, err := calls(w, target)
			if diff := cmp.Diff(test.list, list); diff != "" {
				t.Errorf("got other calls:\n%s", diff)
			}
			if test.err == "" && err != nil ||
				test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}

func TestPort(t *testing.T) {
	tests := []struct {
		options string
		port    uint16
		err     string
	}{
		{"", 2049, ""},
		{"v4.2,hard", 2049, ""},
		{"port=20049", 20049, ""},
		{"port=0", 2049, ""},
		{"vers=3", 111, ""},
		{"vers=3,port=2049", 2049, ""},
		{"proto=tcp6", 2049, ""},
		{"proto=rdma", 0, ""},
		{"vers=3,udp", 0, ""},
		{"port=high", 0, "not a port number"},
		{"vers=7", 2049, "NFS version 7"},
	}
	for _, test := range tests {
		got, err := port([]string{test.options})
		if got != test.port || test.err == "" && err != nil ||
			test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%q: %d, %v; want %d, %q", test.options, got, err, test.port, test.err)
		}
	}
}
