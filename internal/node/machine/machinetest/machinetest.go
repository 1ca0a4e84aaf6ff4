package machinetest

import (
	"embed"
	"io/fs"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/node/machine"
)

//go:embed testdata/*.sysfs
var data embed.FS

// Names returns the names of the recorded machines, sorted.
func Names(t testing.TB) []string {
	t.Helper()
	files, err := fs.Glob(data, "testdata/*.sysfs")
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(f, "testdata/"), ".sysfs")
	}
	return names
}

// FS returns the files of /sys and /proc of a machine that machine.Read reads.
func FS(t testing.TB, name string) fs.FS {
	t.Helper()
	packed, err := data.ReadFile("testdata/" + name + ".sysfs")
	if err != nil {
		t.Fatalf("no machine %q, there are %v", name, Names(t))
	}
	root, err := Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// Load returns the machine with this name.
func Load(t testing.TB, name string) machine.Machine {
	t.Helper()
	m, err := machine.Read(FS(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// All returns all machines by name.
func All(t testing.TB) map[string]machine.Machine {
	t.Helper()
	all := map[string]machine.Machine{}
	for _, name := range Names(t) {
		all[name] = Load(t, name)
	}
	return all
}
