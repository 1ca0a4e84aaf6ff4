package iscsi

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/pod/steps/volume/scsi"
)

// FuzzUnstage removes the shared part of a volume with any identity and any record of its sessions. Nothing outside the
// agent's directory changes, and the error for a damaged file names it.
func FuzzUnstage(f *testing.F) {
	const id = `{"iface":"default","portal":"10.0.0.1:3260","iqn":"iqn.2025-01.com.example:disks","lun":"0"}`
	const own = `{"VolName":"v","Portals":["10.0.0.1:3260"],"Iqn":"iqn.2025-01.com.example:disks","Lun":"0",` +
		`"Iface":"default"}`
	f.Add([]byte(id), []byte(own))
	f.Add([]byte(strings.Replace(id, "}", `,"block":true}`, 1)), []byte(own))
	f.Add([]byte(`{"iface":"default","portal":"a","iqn":"iqn.x","lun":"/../../../../../../outside"}`), []byte(own))
	f.Add([]byte("null"), []byte("[]"))
	f.Add([]byte("{"), []byte(`{"Iqn":"","Portals":[null],"Begun":[""],"InitiatorName":"i","Iface":"-o"}`))
	f.Fuzz(func(t *testing.T, id, own []byte) {
		dir := t.TempDir()
		t.Setenv("PATH", dir) // without iscsiadm
		k := New(Options{Root: filepath.Join(dir, "root"), Log: slog.New(slog.DiscardHandler),
			Machine: scsi.Machine{Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")}})
		part := filepath.Join(k.o.Root, "plugins", dirName, "v")
		for name, content := range map[string][]byte{filepath.Join(dir, "outside", kubeletFile): own,
			filepath.Join(part, "id"): id, filepath.Join(part, recordFile): own} {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := k.Unstage(t.Context(), filepath.Join(part, "globalmount"))
		if _, _, damaged := read(filepath.Join(part, recordFile)); damaged != nil && err == nil {
			t.Errorf("a damaged record was read: %q", own)
		} else if damaged != nil && !strings.Contains(damaged.Error(), part) {
			t.Errorf("the error does not name %s: %v", part, damaged)
		}
		if _, err := os.Stat(filepath.Join(dir, "outside", kubeletFile)); err != nil {
			t.Errorf("the file outside is gone: %v", err)
		}
	})
}
