package disk

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill returns sectors that consist of the letters.
func fill(letters string) []byte {
	var all []byte
	for _, l := range []byte(letters) {
		all = append(all, bytes.Repeat([]byte{l}, SectorSize)...)
	}
	return all
}

// letters returns the first byte of each sector, "." for zeros.
func letters(t *testing.T, d *Disk) string {
	t.Helper()
	all := make([]byte, d.size)
	if err := d.Read(all, 0); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for i := 0; i < len(all); i += SectorSize {
		text = append(text, all[i])
	}
	return string(bytes.ReplaceAll(text, []byte{0}, []byte(".")))
}

func newDisk(t *testing.T, sectors int64) *Disk {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	d, err := New(file, sectors*SectorSize)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Flushed sectors survive every cut. Each other sector has the flushed content or the content of one write.
func TestCutKeepsFlushedWritesAndLosesOthersBySector(t *testing.T) {
	seen := map[string]bool{}
	var sum Loss
	for seed := range uint64(200) {
		d := newDisk(t, 6)
		write := func(text string, at int64, how func([]byte, int64) error) {
			t.Helper()
			if err := how(fill(text), at*SectorSize); err != nil {
				t.Fatal(err)
			}
		}
		write("aaaa", 0, d.Write)
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		write("bbb", 1, d.Write)
		write("c", 2, d.Write)
		write("dd", 4, d.Write)
		write("e", 3, d.WriteThrough)
		if got := letters(t, d); got != "abcedd" {
			t.Fatalf("before the cut: %s", got)
		}
		loss, err := d.Cut(rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		sum = Loss{sum.Kept + loss.Kept, sum.Lost + loss.Lost, sum.Torn + loss.Torn}
		got := letters(t, d)
		seen[got] = true
		if got[0] != 'a' || got[3] != 'e' {
			t.Fatalf("seed %d: flushed sectors are lost: %s", seed, got)
		}
	}
	for _, want := range []string{"aaae..", "abcedd", "abced.", "abbe.d"} {
		if !seen[want] {
			t.Errorf("no cut led to %s, only to %v", want, seen)
		}
	}
	if sum.Kept == 0 || sum.Lost == 0 || sum.Torn == 0 {
		t.Errorf("writes: %+v", sum)
	}
}

func TestSameSeedLosesTheSame(t *testing.T) {
	var all []string
	for range 2 {
		d := newDisk(t, 8)
		for i := range int64(8) {
			if err := d.Write(fill("x"), i*SectorSize); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Cut(rand.New(rand.NewPCG(7, 0))); err != nil {
			t.Fatal(err)
		}
		all = append(all, letters(t, d))
	}
	if diff := cmp.Diff(all[0], all[1]); diff != "" {
		t.Error(diff)
	}
}
