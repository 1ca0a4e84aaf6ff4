package logger

import (
	"encoding/binary"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/logfile"
)

const (
	// headerSize is the size of the header of a spool, whose content follows.
	headerSize = 4096
	// batch is the most that is read at once. It is the usual capacity of a pipe.
	batch = 64 << 10
	// unfreed is how much of a spool may be written to the log before its memory is freed.
	unfreed = 128 << 10
)

// header says how far the content of a spool is in the log.
type header struct {
	// Start is where the content begins that may not be in the log. It is beyond the end of a spool without content.
	Start uint64
	// At is the place in the log where all content before Start ends.
	At logfile.Place
}

// spool has the output of one stream between its FIFO and the log. It is a file on a tmpfs: a next logger finds it.
type spool struct {
	file  *os.File
	saved header // as in the file
	end   uint64 // of the content
	freed uint64 // the memory before it was freed
}

// newSpool makes an empty spool.
func newSpool(path string) (*spool, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	s := &spool{file: file}
	if err := s.empty(); err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

// openSpool opens the spool of a logger before.
func openSpool(path string) (*spool, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s := &spool{file: file, freed: headerSize}
	info, err := file.Stat()
	if err == nil {
		s.end = uint64(info.Size())
		err = binary.Read(io.NewSectionReader(file, 0, headerSize), binary.NativeEndian, &s.saved)
	}
	if err == nil && s.saved.Start >= s.end {
		err = s.empty()
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

// save writes the header.
func (s *spool) save(h header) error {
	if h == s.saved {
		return nil
	}
	b, err := binary.Append(nil, binary.NativeEndian, h)
	if err != nil {
		return err
	}
	if _, err := s.file.WriteAt(b, 0); err != nil {
		return err
	}
	s.saved = h
	return nil
}

// empty removes the content.
func (s *spool) empty() error {
	if err := s.file.Truncate(headerSize); err != nil {
		return err
	}
	s.end, s.freed = headerSize, headerSize
	return s.save(header{headerSize, s.saved.At})
}

// fill moves output from a pipe to the spool. No signal can separate the two.
func (s *spool) fill(pipe int) (n int64, err error) {
	at := int64(s.end)
	for {
		n, err = unix.Splice(pipe, nil, int(s.file.Fd()), &at, batch, unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			break
		}
	}
	if n > 0 {
		s.end += uint64(n)
	}
	return n, err
}

// content returns the content that may not be in the log.
func (s *spool) content() ([]byte, error) {
	b := make([]byte, s.end-s.saved.Start)
	_, err := s.file.ReadAt(b, int64(s.saved.Start))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

// free returns the memory of what is in the log.
func (s *spool) free() error {
	start := s.saved.Start
	if start == s.end {
		return s.empty()
	}
	if start-s.freed < unfreed {
		return nil
	}
	err := unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(s.freed),
		int64(start-s.freed))
	s.freed = start
	return err
}
