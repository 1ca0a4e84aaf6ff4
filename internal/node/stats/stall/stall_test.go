package stall

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
)

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want *cgroups.PSIStats
	}{
		"memory": {"some avg10=1.50 avg60=2.00 avg300=0.10 total=120\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=7\n",
			&cgroups.PSIStats{Some: cgroups.PSIData{Avg10: 1.5, Avg60: 2, Avg300: 0.1, Total: 120},
				Full: cgroups.PSIData{Avg10: 0.5, Total: 7}}},
		"cpu of an older kernel": {"some avg10=9.00 avg60=0.00 avg300=0.00 total=1\n",
			&cgroups.PSIStats{Some: cgroups.PSIData{Avg10: 9, Total: 1}}},
		"something else": {text: "not measured\n"},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, Read(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := Read(filepath.Join(t.TempDir(), "missing")); got != nil {
		t.Errorf("a kernel without PSI: %+v", got)
	}
}
