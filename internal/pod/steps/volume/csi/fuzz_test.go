package csi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzVolumeData reads the kubelet's vol_data.json and the identity of a staged volume. A volume that is read names its
// driver and its handle, and is the same when it is written and read again.
func FuzzVolumeData(f *testing.F) {
	f.Add([]byte(`{"specVolID":"pv","volumeHandle":"h","driverName":"csi.example.com","nodeName":"n",` +
		`"volumeLifecycleMode":"Persistent","attachmentID":"a","seLinuxMountContext":"c"}`))
	f.Add([]byte(`{"Driver":"csi.example.com","Handle":"h","Block":true}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		name := filepath.Join(dir, dataFile)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		d, ok, err := load(dir)
		switch {
		case ok != (err == nil):
			t.Errorf("found %t, error %v", ok, err)
		case ok && (d.Driver == "" || d.Handle == ""):
			t.Errorf("read %+v", d)
		case ok:
			if err := d.save(dir); err != nil {
				t.Fatal(err)
			}
			if again, _, err := load(dir); again != d || err != nil {
				t.Errorf("read %+v, written and read again %+v, %v", d, again, err)
			}
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := readID(name)
		if err != nil {
			return
		}
		var again identity
		if err := json.Unmarshal([]byte(id.String()), &again); err != nil || again != id || id.check() != nil {
			t.Errorf("identity %+v became %+v, %v", id, again, err)
		}
	})
}
