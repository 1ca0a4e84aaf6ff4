package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnitFor(t *testing.T) {
	for _, test := range []struct {
		name, path, root string
		want             string // the command line; "" for an error
	}{
		{"the usual place", program, "", "/usr/local/bin/berth agent --config /etc/berth/config.yaml"},
		{"another place and root", "/opt/berth", "/data",
			"/opt/berth agent --config /etc/berth/config.yaml --root-dir /data"},
		{"a blank", "/my programs/berth", "", ""},
		{"a specifier", program, "/data%i", ""},
	} {
		text, err := unitFor(test.path, test.root)
		if test.want == "" {
			if err == nil {
				t.Errorf("%s: no error", test.name)
			}
			continue
		}
		if err != nil || !strings.Contains(text, "\nExecStart="+test.want+"\n") {
			t.Errorf("%s: %v\n%s", test.name, err, text)
		}
	}
}

func TestCommands(t *testing.T) {
	for name, test := range map[string]struct {
		s    setup
		want [][]string
	}{
		"enable":          {setup{}, [][]string{{"daemon-reload"}, {"enable", "berth.service"}}},
		"start":           {setup{now: true}, [][]string{{"daemon-reload"}, {"enable", "--now", "berth.service"}}},
		"another machine": {setup{prefix: "/mnt"}, [][]string{{"--root=/mnt", "enable", "berth.service"}}},
	} {
		if diff := cmp.Diff(test.want, test.s.commands()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCreateNeverOverwrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc/berth/config.yaml")
	if written, err := create(path, "first"); !written || err != nil {
		t.Fatalf("written: %t, %v", written, err)
	}
	if written, err := create(path, "second"); written || err != nil {
		t.Errorf("written again: %t, %v", written, err)
	}
	if text, err := os.ReadFile(path); string(text) != "first" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if err := differs(path, "first"); err != nil {
		t.Error(err)
	}
	if err := differs(path, "second"); err == nil {
		t.Error("another text is not refused")
	}
}
