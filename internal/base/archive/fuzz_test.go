package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzUnpack unpacks any stream beside files that it must not touch. The checksum of each header is corrected first,
// because a stream with a wrong one ends there.
func FuzzUnpack(f *testing.F) {
	for _, entries := range [][]tar.Header{
		{{Typeflag: tar.TypeReg, Name: ".", Mode: 0o644, Size: 3}},
		{{Typeflag: tar.TypeDir, Name: ".", Mode: 0o755}, {Typeflag: tar.TypeDir, Name: "d", Mode: 0o755},
			{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o4755, Size: 3},
			{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "d/f"},
			{Typeflag: tar.TypeSymlink, Name: "d/up", Linkname: "../.."},
			{Typeflag: tar.TypeReg, Name: "d/up/outside", Size: 3}},
		{{Typeflag: tar.TypeDir, Name: "."}, {Typeflag: tar.TypeSymlink, Name: "a", Linkname: "."},
			{Typeflag: tar.TypeSymlink, Name: "a/b/c/up", Linkname: "../../.."},
			{Typeflag: tar.TypeReg, Name: "a/b/c/up/../../outside", Size: 3}},
		{{Typeflag: tar.TypeDir, Name: "."}, {Typeflag: tar.TypeLink, Name: "h", Linkname: "../outside"},
			{Typeflag: tar.TypeFifo, Name: "p"}, {Typeflag: tar.TypeChar, Name: "c", Devmajor: 1, Devminor: 5},
			{Typeflag: tar.TypeReg, Name: strings.Repeat("long/", 60) + "x", Size: 3}},
	} {
		f.Add(stream(f, entries), true)
		f.Add(stream(f, entries), false)
	}
	f.Add(sparse(f, 1<<24), true) // 16 MiB
	f.Fuzz(func(t *testing.T, raw []byte, links bool) {
		around := t.TempDir()
		write(t, filepath.Join(around, "outside"), "kept", 0o600)
		target := local(filepath.Join(around, "target"))
		target.Links = links
		raw = corrected(raw)
		_, _ = Unpack(bytes.NewReader(raw), target) // most streams are broken
		total := int64(0)
		err := filepath.WalkDir(around, func(name string, _ fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err = errors.Join(err, unix.Lstat(name, &st)); err != nil {
				return err
			}
			rel, err := filepath.Rel(around, name)
			if first, _, _ := strings.Cut(rel, "/"); first != "target" && rel != "." && rel != "outside" {
				t.Errorf("outside of the target: %s", rel)
			}
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFREG:
				total += st.Size
			case unix.S_IFDIR:
			case unix.S_IFLNK:
				to, err := os.Readlink(name)
				inside := strings.HasPrefix(filepath.Join(name, "..", to), around)
				if err == nil && !links && (filepath.IsAbs(to) || !inside) {
					t.Errorf("%s leads to %s", rel, to)
				}
			default:
				t.Errorf("%s has mode %o", rel, st.Mode)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if total > int64(len(raw)+len("kept")) {
			t.Errorf("%d bytes of a stream became files of %d bytes", len(raw), total)
		}
		if text, err := os.ReadFile(filepath.Join(around, "outside")); err != nil || string(text) != "kept" {
			t.Errorf("the file outside holds %q, %v", text, err)
		}
	})
}

// stream packs entries. The content of each file is "bad".
func stream(f *testing.F, entries []tar.Header) []byte {
	f.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		if _, err := io.WriteString(w, "bad"[:h.Size]); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}

// sparse is a stream of one file that has size bytes, all of them in a hole.
func sparse(f *testing.F, size int64) []byte {
	f.Helper()
	records := ""
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=.",
		"GNU.sparse.realsize=" + strconv.FormatInt(size, 10)} {
		n := len(r) + 4
		if n > 99 {
			f.Fatal("a record is too long")
		}
		records += fmt.Sprintf("%d %s\n", n, r)
	}
	block := func(typ byte, name, content string) string {
		h := make([]byte, 512)
		copy(h, name)
		copy(h[100:], "0000644\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00", len(content)))
		h[156] = typ
		copy(h[257:], "ustar\x0000")
		return string(h) + content + strings.Repeat("\x00", (512-len(content)%512)%512)
	}
	holes := "1\n" + strconv.FormatInt(size, 10) + "\n0\n"
	holes += strings.Repeat("\x00", 512-len(holes))
	end := strings.Repeat("\x00", 1024)
	return corrected([]byte(block('x', "PaxHeaders/f", records) + block('0', "f", holes) + end))
}

// corrected returns the stream with a valid checksum in each header that can be reached.
func corrected(raw []byte) []byte {
	raw = bytes.Clone(raw)
	for at := 0; at+512 <= len(raw); {
		h := raw[at : at+512]
		copy(h[148:156], "        ")
		sum := 0
		for _, b := range h {
			sum += int(b)
		}
		if sum == 8*' ' { // a block of zeros ends the stream
			copy(h[148:156], make([]byte, 8))
		} else {
			copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
		}
		size, err := strconv.ParseInt(strings.Trim(string(h[124:136]), " \x00"), 8, 64)
		if err != nil || size < 0 || size > int64(len(raw)) {
			size = 0
		}
		at += 512 + int(size+511)/512*512
	}
	return raw
}
