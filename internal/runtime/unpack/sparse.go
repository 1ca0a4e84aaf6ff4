package unpack

import (
	"archive/tar"
	"io"
	"iter"
	"math"

	"github.com/berth-run/berth/internal/base/archive"
)

// sparse adds up the sizes of an archive's sparse files. Their holes are not in the stream, but containerd writes them
// as zeros. It parses the archive with archive/tar, as containerd does, so that both find the same files.
type sparse struct {
	size int64
	part []byte // the bytes that are not parsed yet
	next func() (struct{}, bool)
	stop func()
}

func newSparse() *sparse {
	s := &sparse{}
	s.next, s.stop = iter.Pull(s.parse)
	return s
}

// add parses the next bytes. It returns when it needs more, or when the bytes are no archive any more.
func (s *sparse) add(part []byte) {
	s.part = part
	s.next()
}

// parse is the body of a coroutine: it yields whenever all bytes so far are parsed.
func (s *sparse) parse(yield func(struct{}) bool) {
	files := tar.NewReader(reader(func(p []byte) (int, error) {
		for len(s.part) == 0 {
			if !yield(struct{}{}) {
				return 0, io.EOF
			}
		}
		n := copy(p, s.part)
		s.part = s.part[n:]
		return n, nil
	}))
	for {
		h, err := files.Next()
		if err != nil {
			return // containerd fails at the same place
		}
		if archive.IsSparse(h) {
			s.size += min(h.Size, math.MaxInt64-s.size)
		}
	}
}

type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
