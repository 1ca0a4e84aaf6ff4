package cli

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api/servertest"
)

// userData holds the fields of a cloud-init configuration that the example uses.
type userData struct {
	PackageUpdate bool     `json:"package_update"`
	Packages      []string `json:"packages"`
	WriteFiles    []struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Content     string `json:"content"`
	} `json:"write_files"`
	RunCmd []string `json:"runcmd"`
}

var betweenCommands = regexp.MustCompile(`\s*(?:&&|\|\||[|;])\s*`)

// The cloud-init example is a configuration whose commands exist, with the flags that it gives them.
func TestCloudInitExample(t *testing.T) {
	text, err := os.ReadFile("../../packaging/cloud-init/user-data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "#cloud-config\n") {
		t.Error("cloud-init reads only files that begin with #cloud-config")
	}
	var data userData
	if err := yaml.UnmarshalStrict(text, &data); err != nil {
		t.Fatal(err)
	}
	if len(data.WriteFiles) == 0 || len(data.RunCmd) == 0 {
		t.Fatalf("no files or no commands: %+v", data)
	}
	for _, f := range data.WriteFiles {
		if !strings.HasPrefix(f.Path, "/etc/berth/manifests/") {
			t.Errorf("%s is not in the manifest directory of the package", f.Path)
		}
		a := servertest.Start(t)
		if got := berth(a, f.Content, "apply", "--dry-run", "-f", "-"); got.Status != 0 {
			t.Errorf("%s: %s", f.Path, got.Err)
		}
	}
	berths := 0
	for _, line := range data.RunCmd {
		for _, one := range betweenCommands.Split(line, -1) {
			words := strings.Fields(one)
			if words[0] != "berth" {
				// These are on every Debian machine with systemd, or in the list of packages.
				if _, err := exec.LookPath(words[0]); err != nil && words[0] != "systemctl" &&
					!slices.Contains(data.Packages, words[0]) {
					t.Errorf("%q: %v", one, err)
				}
				continue
			}
			berths++
			cmd, rest, err := newRoot(&app{}).Find(words[1:])
			if err != nil || cmd.Name() == "berth" {
				t.Errorf("%q: there is no such command (%v)", one, err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%q: %v", one, err)
			} else if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
				t.Errorf("%q: %v", one, err)
			}
		}
	}
	if berths == 0 {
		t.Error("the example runs no command of Berth")
	}
}
