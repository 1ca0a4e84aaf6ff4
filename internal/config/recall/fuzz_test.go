package recall

import (
	"testing"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// FuzzFlags reads the flags of the last agent. After a damaged file the next command works, with the flags of a new
// root directory.
func FuzzFlags(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: File, Version: 1,
		Seeds: []string{
			`{"ConfigFile":"/etc/berth/config.yaml","RootDir":"/var/lib/berth","RunDir":"/run/berth",` +
				`"NodeLabels":{"a":"b"}}`,
			`{"NodeLabels":null}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			flags, err := Load(dir, "")
			report = checkpointtest.Text(err)
			if err != nil {
				if flags, err = Load(dir, ""); err != nil {
					t.Errorf("the second command fails too: %v", err)
				}
			}
			if flags.RootDir != dir {
				t.Errorf("the flags name the root directory %q, want %q", flags.RootDir, dir)
			}
			flags.RootDir = ""
			return checkpointtest.Show(flags), report
		},
	})
}
