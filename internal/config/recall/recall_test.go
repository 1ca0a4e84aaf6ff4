package recall

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/config"
)

func TestLoadReturnsTheFlagsOfTheLastAgentWithAbsolutePaths(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	given := config.Flags{ConfigFile: "config.yaml", RunDir: "run", NodeLabels: map[string]string{"a": "b"}}
	if err := Save(root, given); err != nil {
		t.Fatal(err)
	}
	want := config.Flags{RootDir: root, ConfigFile: filepath.Join(root, "config.yaml"),
		RunDir: filepath.Join(root, "run"), NodeLabels: given.NodeLabels}
	got, err := Load(root, "")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("(-want +got):\n%s%v", diff, err)
	}
	if given.ConfigFile != "config.yaml" {
		t.Error("Save has changed the agent's flags")
	}
}

func TestLoadWithoutAnAgent(t *testing.T) {
	system := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(system, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	for _, test := range []struct {
		name, root, system string
		want               config.Flags
	}{
		{"another root", other, system, config.Flags{RootDir: other}},
		{"no file", other, system + ".none", config.Flags{RootDir: other}},
	} {
		got, err := Load(test.root, test.system)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s (-want +got):\n%s%v", test.name, diff, err)
		}
	}
	if err := os.WriteFile(filepath.Join(other, File), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(other, system); err == nil {
		t.Error("damaged flags were taken")
	}
}
