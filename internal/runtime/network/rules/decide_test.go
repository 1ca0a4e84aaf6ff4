package rules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	one = strings.Repeat("1a", 32)
	two = strings.Repeat("2b", 32)
)

func TestOwner(t *testing.T) {
	for comment, want := range map[string]Owner{
		"05a1319e5ac2a22e-c5729f426ae0182a, net: berth-1, if: eth0, id: " + one[:58]: {"berth-1", one[:58]},
		"05a1319e5ac2a22e-c5729f426ae0182a, net: a, b, if: eth0, id: " + one:         {"a, b", one},
		one:                  {"", one},
		"a rule of somebody": {},
		"":                   {},
	} {
		got, ok := owner(comment)
		if diff := cmp.Diff(want, got); diff != "" || ok != (want != Owner{}) {
			t.Errorf("%s: %t\n%s", comment, ok, diff)
		}
	}
}

func TestOf(t *testing.T) {
	for _, test := range []struct {
		id   string
		want bool
	}{{one, true}, {one + "3c", true}, {one[:leastID], true}, {one[:leastID-1], false}, {two, false}, {"", false}} {
		if got := (Owner{Sandbox: test.id}).Of(one); got != test.want {
			t.Errorf("%q: %t", test.id, got)
		}
	}
}

// saved is the output of iptables-save after the plugins bridge and portmap have attached two pods.
func saved(ids ...string) string {
	text := "*nat\n:PREROUTING ACCEPT [0:0]\n:CNI-HOSTPORT-DNAT - [0:0]\n" +
		"-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n"
	for i, id := range ids {
		mark := string(rune('a' + i))
		comment := `-m comment --comment "name: \"berth0\" id: \"` + id + `\"" `
		text += "-A POSTROUTING -s 10.0.0.2/32 " + comment + "-j CNI-" + mark + "\n" +
			"-A CNI-" + mark + " -d 10.0.0.0/24 " + comment + "-j ACCEPT\n" +
			"-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"berth0\\\" id: \\\"" + id +
			"\\\"\" -m multiport --dports 80 -j CNI-DN-" + mark + "\n" +
			"-A CNI-DN-" + mark + " -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2:80\n"
	}
	return text + "COMMIT\n"
}

func TestWithoutOwned(t *testing.T) {
	comment := `-m comment --comment "name: \"berth0\" id: \"` + one + `\"" `
	want := "*nat\n" +
		"-D POSTROUTING -s 10.0.0.2/32 " + comment + "-j CNI-a\n" +
		"-D CNI-a -d 10.0.0.0/24 " + comment + "-j ACCEPT\n" +
		`-D CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"berth0\" id: \"` + one +
		`\"" -m multiport --dports 80 -j CNI-DN-a` + "\n" +
		"-F CNI-a\n-F CNI-DN-a\n-X CNI-a\n-X CNI-DN-a\nCOMMIT\n"
	of := func(sandbox string) func(Owner) bool {
		return func(o Owner) bool { return o.Network == "berth0" && o.Of(sandbox) }
	}
	if diff := cmp.Diff(want, withoutOwned(saved(one, two), of(one))); diff != "" {
		t.Error(diff)
	}
	if got := withoutOwned(saved(two), of(one)); got != "" {
		t.Errorf("rules of another pod: %s", got)
	}
}
