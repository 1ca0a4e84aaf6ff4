package checkpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type state struct {
	Name  string   `json:"name"`
	Ports []int    `json:"ports,omitempty"`
	Tags  []string `json:"tags,omitempty"`
}

var v1 = Format{Version: 1}

func TestSaveThenLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if _, err := Load[state](path, v1); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("load of an absent file: %v", err)
	}
	for _, want := range []state{{Name: "a", Ports: []int{1, 2}}, {Name: "<b> & \u2028"}, {}} {
		if err := Save(path, v1, want); err != nil {
			t.Fatal(err)
		}
		got, err := Load[state](path, v1)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v, value (-want +got):\n%s", err, diff)
		}
	}
	if got := names(t, filepath.Dir(path)); !cmp.Equal(got, []string{"state.json"}) {
		t.Errorf("files left: %v", got)
	}
}

func TestFormatOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := Save(path, Format{Version: 3}, state{Name: "web", Ports: []int{80}}); err != nil {
		t.Fatal(err)
	}
	got := read(t, path)
	want := `{"version":3,"checksum":"sha256:60f58c529cbe61d3ee735e01d5019d7d6d676d30f09944621356024283a1942d",` +
		`"data":{"name":"web","ports":[80]}}` + "\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestDamageIsMovedAside(t *testing.T) {
	sealed := func(version int, data string) string { return string(seal(version, []byte(data))) }
	tests := []struct {
		name, content, want, suffix string
	}{
		{"empty", "", "is cut off after 0 bytes", ".corrupt-"},
		{"cut off", sealed(1, `{"name":"a"}`)[:40], "is cut off after 40 bytes", ".corrupt-"},
		{"zeros", "\x00\x00\x00\x00",
			"is not an envelope of version, checksum and data: invalid character '\\x00' looking for " +
				"beginning of value", ".corrupt-"},
		{"unknown member", `{"version":1,"sum":"x","data":{}}`,
			`is not an envelope of version, checksum and data: json: unknown field "sum"`, ".corrupt-"},
		{"behind its end", sealed(1, `{}`) + "{", "has content after its end at byte 110", ".corrupt-"},
		{"data changed", strings.Replace(sealed(1, `{"name":"a"}`), `"a"`, `"b"`, 1), `has checksum "sha256:`,
			".corrupt-"},
		{"version changed", strings.Replace(sealed(1, `{"name":"a"}`), `:1,`, `:2,`, 1), `has checksum "sha256:`,
			".corrupt-"},
		{"other shape", sealed(1, `{"name":1}`), "has data of another shape: json: cannot unmarshal number",
			".corrupt-"},
		{"no data", sealed(1, `null`), "has no data", ".corrupt-"},
		{"too new", sealed(9, `{}`), "has format version 9, written by a newer program; this one reads up to version 1",
			".version-9-"},
		{"too old", sealed(0, `{}`), "has format version 0, which cannot be converted to version 1", ".corrupt-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			write(t, path, tt.content)
			got, err := Load[state](path, v1)
			damaged, ok := errors.AsType[*DamagedError](err)
			if !ok {
				t.Fatalf("got error %v, want a *DamagedError", err)
			}
			if !strings.HasPrefix(damaged.Err.Error(), tt.want) {
				t.Errorf("got  %q\nwant %q", damaged.Err, tt.want)
			}
			if !strings.Contains(err.Error(), path) || !strings.HasPrefix(damaged.Moved, path+tt.suffix) {
				t.Errorf("path or new name missing: %v", err)
			}
			if diff := cmp.Diff(state{}, got); diff != "" {
				t.Errorf("a damaged file gave a value:\n%s", diff)
			}
			if kept := read(t, damaged.Moved); kept != tt.content {
				t.Errorf("kept %q, want %q", kept, tt.content)
			}
			if _, err := Load[state](path, v1); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("second load: %v", err)
			}
		})
	}
}

// A single flipped bit is either detected or harmless.
func TestBitFlipsAreDetected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	want := state{Name: "web", Ports: []int{80}}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(seal(1, data)) * 8 {
		content := seal(1, data)
		content[i/8] ^= 1 << (i % 8)
		write(t, path, string(content))
		got, err := Load[state](path, v1)
		if err == nil && !cmp.Equal(want, got) {
			t.Errorf("bit %d: read %+v from %s", i, got, content)
		}
	}
}

// even is a number that no owner writes if it is odd.
type even int

func (e even) Check() error {
	if e%2 != 0 {
		return fmt.Errorf("%d is odd", e)
	}
	return nil
}

func TestLoadChecksTheValue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	d := NewDir[even](filepath.Join(filepath.Dir(path), "values"), v1)
	for _, v := range []even{2, 3} {
		if err := errors.Join(Save(path, v1, v), d.Save("key", v)); err != nil {
			t.Fatal(err)
		}
		got, err := Load[even](path, v1)
		all, dirErr := d.LoadAll()
		if v == 2 {
			if got != v || all["key"] != v || err != nil || dirErr != nil {
				t.Errorf("read %d and %v, errors %v, %v", got, all, err, dirErr)
			}
			continue
		}
		for _, err := range []error{err, dirErr} {
			damaged, ok := errors.AsType[*DamagedError](err)
			if !ok || !strings.HasSuffix(damaged.Err.Error(), "has data of another shape: 3 is odd") {
				t.Errorf("got %v", err)
			}
		}
		if got != 0 || len(all) > 0 {
			t.Errorf("a value that fails its check was read: %d, %v", got, all)
		}
	}
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := Save(path, v1, "web"); err != nil {
		t.Fatal(err)
	}
	v2 := Format{Version: 2, Migrate: func(from int, data json.RawMessage) (json.RawMessage, error) {
		if from != 1 {
			return nil, fmt.Errorf("unexpected version %d", from)
		}
		return fmt.Appendf(nil, `{"name":%s}`, data), nil
	}}
	got, err := Load[state](path, v2)
	if diff := cmp.Diff(state{Name: "web"}, got); diff != "" || err != nil {
		t.Errorf("error %v, value (-want +got):\n%s", err, diff)
	}
	broken := Format{Version: 2, Migrate: func(int, json.RawMessage) (json.RawMessage, error) {
		return nil, errors.New("no name")
	}}
	_, err = Load[state](path, broken)
	if damaged, ok := errors.AsType[*DamagedError](err); !ok ||
		damaged.Err.Error() != "cannot be converted from format version 1 to 2: no name" {
		t.Errorf("got %v", err)
	}
}

func TestDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods")
	d := NewDir[state](dir, v1)
	if all, err := d.LoadAll(); len(all) != 0 || err != nil {
		t.Fatalf("a directory that is not there: %v, %v", all, err)
	}
	want := map[string]state{}
	for _, key := range []string{"default/web", "../../etc/passwd", ".hidden", "", "x.json.tmp",
		strings.Repeat("n", 63) + "/" + strings.Repeat("é", 200)} {
		want[key] = state{Name: key}
		save := d.Save
		if len(want)%2 == 0 {
			save = d.SaveUnsynced
		}
		if err := save(key, want[key]); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string) {
		t.Helper()
		got, err := d.LoadAll()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v, values (-want +got):\n%s", what, err, diff)
		}
	}
	check("saved")
	for _, key := range []string{"default/web", "default/web", "never there"} {
		if err := d.Delete(key); err != nil {
			t.Error(err)
		}
		delete(want, key)
	}
	check("deleted")
	for _, name := range names(t, dir) {
		if strings.HasPrefix(name, ".") || len(name) > 255 {
			t.Errorf("file name %q", name)
		}
	}
}

func TestLoadAllSkipsDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	d := NewDir[state](dir, v1)
	for _, key := range []string{"a", "b", "c"} {
		if err := d.Save(key, state{Name: key}); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "a.json"), "{")
	write(t, filepath.Join(dir, "copy-of-b.json"), read(t, filepath.Join(dir, "b.json")))
	write(t, filepath.Join(dir, "c.json.tmp"), "cut off in the middle of a sa")
	got, err := d.LoadAll()
	if diff := cmp.Diff(map[string]state{"b": {Name: "b"}, "c": {Name: "c"}}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	for _, want := range []string{"a.json is cut off after 1 bytes",
		`copy-of-b.json holds "b", which belongs in b.json`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	files := names(t, dir)
	if len(files) != 4 { // b, c and two files that were moved aside
		t.Errorf("files: %v", files)
	}
}

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	path := filepath.Join(dir, "state.json")
	old := state{Name: "old"}
	if err := Save(path, v1, old); err != nil {
		t.Fatal(err)
	}
	err := Save(path, v1, state{Name: strings.Repeat("x", 1<<20)})
	if !IsDiskFull(err) || !strings.Contains(err.Error(), path) {
		t.Errorf("got error %v, want a full disk at %s", err, path)
	}
	got, err := Load[state](path, v1)
	if diff := cmp.Diff(old, got); diff != "" || err != nil {
		t.Errorf("old file: error %v, value (-want +got):\n%s", err, diff)
	}
	if got := names(t, dir); !cmp.Equal(got, []string{"state.json"}) {
		t.Errorf("files left on the full disk: %v", got)
	}
	if err := Save(path, v1, state{Name: "new"}); err != nil {
		t.Errorf("a small save after it: %v", err)
	}
}

// A process that saves without pause is killed. The file is complete at every moment.
func TestKilledWhileSaving(t *testing.T) {
	const loop = "BERTH_TEST_SAVE_LOOP"
	if path := os.Getenv(loop); path != "" {
		for i := 0; ; i++ {
			if err := Save(path, v1, state{Name: "x", Ports: []int{i, i, i}}); err != nil {
				t.Fatal(err)
			}
			fmt.Println("saved")
		}
	}
	for round := range 5 {
		path := filepath.Join(t.TempDir(), "state.json")
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWhileSaving$")
		cmd.Env = append(os.Environ(), loop+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 3 + round {
			lines.Scan()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the test has killed it
		got, err := Load[state](path, v1)
		if err != nil || got.Name != "x" || got.Ports[0] < 2+round || got.Ports[0] != got.Ports[2] {
			t.Errorf("round %d: %+v, %v", round, got, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte(`{"version":1,"checksum":"","data":null}`))
	f.Add(seal(1, []byte(`{"name":"a","ports":[1]}`)))
	f.Add(seal(2, []byte(`{}`)))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "state.json")
		write(t, path, string(content))
		v, err := Load[state](path, v1)
		if err == nil {
			if err := Save(path, v1, v); err != nil {
				t.Errorf("what was read cannot be saved: %v", err)
			}
			return
		}
		damaged, ok := errors.AsType[*DamagedError](err)
		if !ok {
			t.Fatalf("got %v, want a *DamagedError", err)
		}
		if read(t, damaged.Moved) != string(content) {
			t.Error("the damaged file is not kept as it was")
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A removal that the disk refused to sync is refused again when it is repeated, although the file is gone already. A
// directory of /proc cannot be synced.
func TestDeleteOfAnAbsentKeySyncsTheDirectory(t *testing.T) {
	refusing := NewDir[string]("/proc/self/fdinfo", Format{Version: 1})
	if err := refusing.Delete("absent"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("delete in a directory that cannot be synced: %v, want %v", err, syscall.EINVAL)
	}
	if err := refusing.DeleteUnsynced("absent"); err != nil {
		t.Errorf("delete without a sync: %v", err)
	}
	if err := refusing.Sync("absent"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("sync after it: %v, want %v", err, syscall.EINVAL)
	}
	if err := NewDir[string](filepath.Join(t.TempDir(), "absent"), Format{Version: 1}).Delete("k"); err != nil {
		t.Errorf("delete in a directory that does not exist: %v", err)
	}
}

// A disk has refused to sync a removal. Its file system ends, and the kernel reports a success for the next sync. The
// repeated removal is not confirmed until a file can be made.
func TestRepeatedDeleteNeedsADiskThatWrites(t *testing.T) {
	const refuses = "/dev/pts" // a directory that can be synced, and has no file of ours
	if err := Sync(refuses); err != nil {
		t.Skip(err)
	}
	d := NewDir[string]("/proc/self/fdinfo", Format{Version: 1})
	if err := d.Delete("k"); err == nil {
		t.Fatal("a directory of /proc was synced")
	}
	d.path = refuses
	for range 2 {
		if err := d.DeleteUnsynced("k"); err != nil {
			t.Errorf("delete without a sync: %v", err)
		}
		if err := d.Delete("k"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("delete where no file can be made: %v, want %v", err, fs.ErrPermission)
		}
	}
	d.path = t.TempDir()
	if err := d.Delete("k"); err != nil {
		t.Errorf("delete on a disk that is good again: %v", err)
	}
	if left := names(t, d.path); len(left) > 0 {
		t.Errorf("left in the directory: %q", left)
	}
	d.path = refuses
	if err := d.Delete("k"); err != nil {
		t.Errorf("delete after one that the disk has kept: %v", err)
	}
}
