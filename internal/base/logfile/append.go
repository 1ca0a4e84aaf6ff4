package logfile

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// MaxLine is how many bytes of output one line of the log holds at most. Longer lines are split. The CRI plugin of
// containerd and Docker have the same default.
const MaxLine = 16 << 10

// Place is a place in a file of the log.
type Place struct{ Device, Inode, Offset uint64 }

// SameFile reports whether two places are in the same file.
func (p Place) SameFile(other Place) bool { return p.Device == other.Device && p.Inode == other.Inode }

// Append opens a file below root for appending lines, and creates it if there is none. It refuses a file that is not
// regular, and removes a line at the end that a writer could not complete. It returns the end of the file.
func Append(root *os.Root, rel string) (*os.File, Place, error) {
	file, err := root.OpenFile(rel, os.O_CREATE|os.O_APPEND|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, Place{}, err
	}
	at, err := PlaceOf(file)
	if err == nil {
		at, err = CutTorn(file, at)
	}
	if err != nil {
		_ = file.Close()
		return nil, Place{}, err
	}
	return file, at, nil
}

// PlaceOf returns the end of a regular file.
func PlaceOf(file *os.File) (Place, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return Place{}, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return Place{}, fmt.Errorf("open %s: not a regular file", file.Name())
	}
	return Place{stat.Dev, stat.Ino, uint64(stat.Size)}, nil
}

// CutTorn removes a line at the end that a writer could not complete. It returns the new end.
func CutTorn(file *os.File, end Place) (Place, error) {
	tail := make([]byte, min(end.Offset, 2*MaxLine))
	if _, err := file.ReadAt(tail, int64(end.Offset)-int64(len(tail))); err != nil && err != io.EOF {
		return Place{}, err
	}
	torn := len(tail) - 1 - bytes.LastIndexByte(tail, '\n')
	if torn == 0 || torn == len(tail) && end.Offset > uint64(torn) { // complete, or no log
		return end, nil
	}
	end.Offset -= uint64(torn)
	return end, file.Truncate(int64(end.Offset))
}
