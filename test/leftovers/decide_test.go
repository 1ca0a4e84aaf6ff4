package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSinceNamesEachNewThing(t *testing.T) {
	before := findings{"mount": {"/", "/a"}, "rule": {"r"}}
	now := findings{"mount": {"/", "/a", "/a", "/b"}, "rule": nil, "process": {"1 berth"}}
	want := []string{"mount /a", "mount /b", "process 1 berth"}
	if diff := cmp.Diff(want, since(before, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if left := since(now, now); left != nil {
		t.Errorf("nothing changed: %v", left)
	}
}

const id = "f26aa939d3ec6a472099633a43c8b33b"

func TestRulesOfPodsCount(t *testing.T) {
	got := rules(`table inet cni_plugins_masquerade {
	comment "Masquerading"
	chain masq_checks {
		ip saddr 10.0.0.2 masquerade comment "a, id: ` + id + `"
	}
	chain postrouting {
		goto masq_checks
	}
}
table ip nat {
	chain CNI-HOSTPORT-DNAT {
	}
	chain CNI-DN-0123 {
	}
}
table ip berth_0011aabb {
	chain input {
		iifname != "lo" counter packets 3 bytes 180 drop # handle 2
	}
}
`)
	want := []string{
		`table inet cni_plugins_masquerade: ip saddr 10.0.0.2 masquerade comment "a, id: ` + id + `"`,
		"table ip nat: chain CNI-DN-0123",
		"table ip berth_0011aabb",
		"table ip berth_0011aabb: chain input",
		`table ip berth_0011aabb: iifname != "lo" drop`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
