package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzRead reads any file as a record. An error names the file. A record that is read names its container, and is the
// same when it is written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":2,"boot":"b","namespace":"k8s.io","id":"c","bundle":"/run/c","runtime":{"binary":"runc",` +
		`"root":"/run/runc","systemdCgroup":true,"ioUID":1},"cgroups":{"":"/pods/c"},"oomKills":2,"log":"/var/log/c",` +
		`"init":{"phase":"exited","pid":7,"started":9,"status":137,"neverRan":true,"exitedAt":"2026-03-01T12:00:00Z",` +
		`"stdout":"out","console":8,"consoleStarted":9},"execs":{"e":{"phase":"running","pid":-1,"terminal":true}}}`))
	f.Add([]byte(`{"version":3,"id":"c"}`))
	f.Add([]byte(`{"id":"c","execs":{"e":null}}`))
	f.Add([]byte("null"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		file := File(t.TempDir())
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Read(file)
		if err != nil {
			if !strings.Contains(err.Error(), file) {
				t.Errorf("the error does not name %s: %v", file, err)
			}
			return
		}
		if r.ID == "" || r.Version > Version {
			t.Errorf("read %+v", r)
		}
		if p := r.Init; p.HasStarted() && p.Phase != Running && (p.Pid == 0 || p.NeverRan) {
			t.Errorf("a process that never ran has started: %+v", p)
		}
		r.Bundle = filepath.Dir(file)
		if err := r.Write(); err != nil {
			t.Fatal(err)
		}
		if again, err := Read(file); err != nil || !cmp.Equal(r, again, cmpopts.EquateEmpty()) {
			t.Errorf("%v (-first +again):\n%s", err, cmp.Diff(r, again, cmpopts.EquateEmpty()))
		}
	})
}
