package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReservedIDsComeFromBothFiles(t *testing.T) {
	projects := "# people\n10:/srv/a\n1048577:/var/lib/kubelet/pods/a\nnot a line\n99999999999:/x\n"
	projid := "#comment:7\nweb:11\nbad:id\nalso\n"
	want := map[uint32]bool{10: true, 1048577: true, 7: true, 11: true}
	if diff := cmp.Diff(want, reservedIDs([]byte(projects), []byte(projid))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBlocksRoundDownToTheFileSystem(t *testing.T) {
	for bytes, want := range map[int64]uint64{1: 4, 4095: 4, 4096: 4, 8191: 4, 20_000_000: 19528, 1 << 62: 1 << 52} {
		if got := blocks(bytes, 4096); got != want {
			t.Errorf("%d bytes: %d blocks, want %d", bytes, got, want)
		}
	}
}
