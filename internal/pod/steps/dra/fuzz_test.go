package dra

import (
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzCheckpoint reads the kubelet's checkpoint of prepared claims. sealed inputs are its data, with a valid checksum.
// What cannot be read is kept under another name; what can be read is the same when it is written and read again.
func FuzzCheckpoint(f *testing.F) {
	data := `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[` +
		`{"ClaimUID":"u","ClaimName":"c","Namespace":"n","PodUIDs":{"p":{}},"DriverState":{"d":{"Devices":[` +
		`{"PoolName":"p","DeviceName":"d","RequestNames":["r"],"CDIDeviceIDs":["a/b=c"]}]}}}]}`
	f.Add([]byte(data), true)
	f.Add([]byte(`{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1",`+
		`"ClaimInfoStateList":[null]}`), true)
	f.Add([]byte(`{"Data":"{}","Checksum":1}`), false)
	f.Fuzz(func(t *testing.T, content []byte, valid bool) {
		if valid {
			var err error
			if content, err = json.Marshal(sealed{Data: string(content),
				Checksum: crc32.ChecksumIEEE(content)}); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), stateFile)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		records, err := readRecords(path)
		aside, globErr := filepath.Glob(path + ".corrupt-*")
		if globErr != nil || (err == nil) == (len(aside) == 1) || err != nil && len(records) > 0 {
			t.Fatalf("error %v, %d records, kept as %v", err, len(records), aside)
		}
		if err != nil {
			if kept, err := os.ReadFile(aside[0]); err != nil || string(kept) != string(content) {
				t.Errorf("kept %q, %v", kept, err)
			}
			return
		}
		if err := writeRecords(path, records); err != nil {
			t.Fatal(err)
		}
		again, err := readRecords(path)
		if diff := cmp.Diff(records, again, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("written and read again: %v (-want +got):\n%s", err, diff)
		}
	})
}
