package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/safepath"
)

// Target is the place and the manner for unpacking a stream.
type Target struct {
	// File opens the place for a stream with one file, for writing. Dir makes and opens the place for a stream with a
	// directory. Unpack calls exactly one of them.
	File func(mode fs.FileMode) (*os.File, error)
	Dir  func(mode fs.FileMode) (*os.File, error)
	// Owner of the unpacked files. nil: the user of this process.
	Owner *Owner
	// Links makes links to any target. Without it, links that could lead out of the directory are skipped.
	Links bool
	// Expect is called before the first file is opened. bytes is the approximate size of the whole stream, or 0 if the
	// stream does not say it. nil: it is not called.
	Expect func(bytes int64)
}

// Owner is a user and a group by number.
type Owner struct{ UID, GID int }

// Unpack reads a stream to its end and replaces existing files. It returns a line for each entry that it skipped.
func Unpack(r io.Reader, t Target) (skipped []string, err error) {
	stream := tar.NewReader(r)
	first, err := stream.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("unpack files: %w", err)
	}
	if t.Expect != nil {
		t.Expect(expected(first))
	}
	mode := first.FileInfo().Mode()
	switch {
	case path.Clean(first.Name) != ".":
		err = fmt.Errorf("the stream begins with %q", first.Name)
	case IsSparse(first):
		err = errors.New("source is a sparse file in a form that is not copied")
	case mode.IsDir():
		skipped, err = t.directory(stream, mode.Perm())
	case mode.IsRegular():
		err = t.file(stream, mode.Perm())
	default:
		err = fmt.Errorf("source is a %s: only files and directories are copied", safepath.TypeName(mode))
	}
	if err != nil {
		return skipped, fmt.Errorf("unpack files: %w", err)
	}
	return skipped, nil
}

func (t Target) file(stream io.Reader, mode fs.FileMode) error {
	f, err := t.File(mode)
	if err != nil {
		return err
	}
	return t.fill(f, stream, mode)
}

// fill writes a file and closes it.
func (t Target) fill(f *os.File, content io.Reader, mode fs.FileMode) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a %s", filepath.Base(f.Name()), safepath.TypeName(info.Mode()))
	}
	if err == nil {
		_, err = io.Copy(f, content)
	}
	if err == nil && t.Owner != nil {
		err = f.Chown(t.Owner.UID, t.Owner.GID)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	return errors.Join(err, f.Close())
}

func (t Target) directory(stream *tar.Reader, mode fs.FileMode) (skipped []string, err error) {
	f, err := t.Dir(mode)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	root, err := os.OpenRoot(fdPath(f))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // the files in it are closed already
	for {
		h, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return skipped, nil
		}
		if err != nil {
			return skipped, err
		}
		name := path.Clean(h.Name)
		if !filepath.IsLocal(name) {
			return skipped, fmt.Errorf("the stream contains %q, which is outside the directory", h.Name)
		}
		why, err := t.refuse(f, name, h)
		if err != nil {
			return skipped, fmt.Errorf("%s: %w", name, err)
		}
		if why != "" {
			skipped = append(skipped, name+": "+why)
			continue
		}
		if err := t.entry(root, name, h, stream); err != nil {
			return skipped, fmt.Errorf("%s: %w", name, err)
		}
	}
}

// refuse returns why an entry is skipped, or "" to unpack it.
func (t Target) refuse(root *os.File, name string, h *tar.Header) (why string, err error) {
	switch mode := h.FileInfo().Mode(); {
	case h.Typeflag == tar.TypeLink: // Pack makes none
		return "is a hard link", nil
	case IsSparse(h): // Pack makes none
		return "is a sparse file", nil
	case mode.IsDir(), mode.IsRegular():
		return "", nil
	case mode.Type() != fs.ModeSymlink:
		return "is a " + safepath.TypeName(mode), nil
	case t.Links:
		return "", nil
	case !staysInside(name, h.Linkname):
		return "is a link to " + h.Linkname + ", which is or may be outside the directory", nil
	}
	direct, err := safepath.Direct(root, path.Dir(name))
	if err == nil && !direct {
		why = "is a link in a directory behind another link"
	}
	return why, err
}

// staysInside reports whether a link can lead only below the directory that a stream is unpacked into. name is the
// link's path in the directory. No other link may be on that path.
//
// The kernel takes ".." from where the links before it have led, and these links may not exist yet. So ".." may only
// begin a target, and climb no higher than the directory.
func staysInside(name, target string) bool {
	if path.IsAbs(target) {
		return false
	}
	climb, down := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			down = true
		case down:
			return false
		default:
			climb++
		}
	}
	return climb <= strings.Count(name, "/")
}

// IsSparse reports whether a file has holes. A stream of a few bytes could fill the disk with their zeros.
func IsSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// entry makes one file, directory or link below root. It follows no link out of root.
func (t Target) entry(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	switch mode := h.FileInfo().Mode(); {
	case mode.IsDir():
		if err := root.Mkdir(name, mode.Perm()|0o700); err != nil {
			if info, statErr := root.Stat(name); statErr == nil && info.IsDir() {
				return nil
			}
			return err
		}
		return t.own(root, name)
	case mode.IsRegular():
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		return t.fill(f, content, mode.Perm())
	default:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return t.own(root, name)
	}
}

func (t Target) own(root *os.Root, name string) error {
	if t.Owner == nil {
		return nil
	}
	return root.Lchown(name, t.Owner.UID, t.Owner.GID)
}
