package scsi

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

// machine has two disks, sda and sdb, which are paths of the multipath device dm-0. Calls of tools are in the file
// calls of dir.
func machine(t *testing.T) (m Machine, dir string) {
	t.Helper()
	dir = t.TempDir()
	tool := "#!/bin/sh\necho \"$(basename $0) $*\" >>" + dir + "/calls\n"
	for name, text := range map[string]string{
		"bin/multipath": tool, "bin/blockdev": tool, "dev/dm-0": "", "dev/sda": "", "dev/sdb": "",
		"sys/block/dm-0/dm/uuid": "mpath-36", "sys/block/dm-0/dev": "999:7\n",
		"sys/block/dm-0/slaves/sda": "", "sys/block/dm-0/slaves/sdb": "",
		"sys/block/sda/holders/dm-0": "", "sys/block/sda/device/delete": "", "sys/block/sda/dev": "999:1\n",
		"sys/block/sdb/holders/dm-0": "", "sys/block/sdb/device/delete": "", "sys/block/sdb/dev": "999:2\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	return Machine{Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")}, dir
}

func (m Machine) removed(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"sda", "sdb"} {
		if text, err := os.ReadFile(m.InSys("block", name, "device/delete")); err != nil || string(text) == "1" {
			all = append(all, name)
		}
	}
	return all
}

func TestRemoveRemovesAllPathsOfADisk(t *testing.T) {
	m, dir := machine(t)
	if at := m.Multipath(m.InDev("sda")); at != m.InDev("dm-0") {
		t.Errorf("got multipath device %q", at)
	}
	if err := m.Remove(t.Context(), m.InDev("sda")); err != nil {
		t.Fatal(err)
	}
	if got := m.removed(t); !cmp.Equal(got, []string{"sda", "sdb"}) {
		t.Errorf("removed %q", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "calls"))
	want := fmt.Sprintf("multipath -f %[1]s/dm-0\nblockdev --flushbufs %[1]s/sda\nblockdev --flushbufs %[1]s/sdb\n",
		m.Dev)
	if string(text) != want || err != nil {
		t.Errorf("got calls %q, %v", text, err)
	}
}

func TestRemoveLeavesADiskThatIsMounted(t *testing.T) {
	m, _ := machine(t)
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter("/proc"))
	if err != nil || len(mounts) == 0 {
		t.Fatalf("no mount to look at: %v", err)
	}
	dev := fmt.Sprintf("%d:%d\n", mounts[0].Major, mounts[0].Minor)
	if err := os.WriteFile(m.InSys("block/dm-0/dev"), []byte(dev), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), m.InDev("sdb")); err != nil {
		t.Fatal(err)
	}
	if got := m.removed(t); len(got) > 0 {
		t.Errorf("removed %q, which another program uses", got)
	}
}

func TestRemoveOfADiskThatIsGone(t *testing.T) {
	m, _ := machine(t)
	if err := m.Remove(t.Context(), m.InDev("sdz")); err != nil {
		t.Error(err)
	}
}
