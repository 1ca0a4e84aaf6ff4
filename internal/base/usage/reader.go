package usage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fscommon"

	"github.com/berth-run/berth/internal/base/cgroupfile"
)

// Reader reads the usage of one cgroup again and again. On version 1 it keeps the files of Brief open, because to open
// a file takes ten times as long as to read it. It may be used by several goroutines.
type Reader struct {
	group cgroupfile.Group
	what  cgroups.Controller
	files []*os.File // in the order of briefFiles, nil for one that is not read; empty if no file is kept open
}

// Open returns a Reader of a cgroup for Close. The error is fs.ErrNotExist if the cgroup is gone.
func Open(g cgroupfile.Group, what cgroups.Controller) (*Reader, error) {
	r := &Reader{group: relevant(g).Present(), what: what}
	if len(r.group.Dirs) == 0 {
		return nil, fmt.Errorf("read a cgroup: %w", fs.ErrNotExist)
	}
	if g.Unified || what&^(Brief|cgroups.Pids) != 0 {
		return r, nil
	}
	for _, f := range briefFiles {
		dir, ok := r.group.Dirs[f.dir]
		if !ok || what&f.controller == 0 {
			r.files = append(r.files, nil)
			continue
		}
		file, err := cgroups.OpenFile(dir, f.name, os.O_RDONLY)
		if err != nil && (!f.optional || !errors.Is(err, fs.ErrNotExist)) {
			r.Close()
			return nil, r.failure(err)
		}
		r.files = append(r.files, file) // nil if there is none
	}
	return r, nil
}

// Close closes the files. Reads then fail.
func (r *Reader) Close() {
	for _, f := range r.files {
		if f != nil {
			_ = f.Close() // it was opened for reading only
		}
	}
}

// Read reads the cgroup. The error is fs.ErrNotExist if it is gone.
func (r *Reader) Read(now time.Time) (s Sample, err error) {
	s = Sample{At: now, Unified: r.group.Unified}
	if len(r.files) > 0 {
		s.Stats, err = r.brief()
	} else {
		s.Stats, err = library(r.group, r.what)
	}
	if err != nil {
		return s, r.failure(err)
	}
	if r.what == Full {
		s.OOMKills = oomKills(r.group)
	}
	return s, nil
}

// failure adds to an error what failed. Reading a file of a removed cgroup fails in several ways.
func (r *Reader) failure(err error) error {
	if len(r.group.Present().Dirs) == 0 {
		err = fs.ErrNotExist
	}
	return fmt.Errorf("read a cgroup: %w", err)
}

// briefFiles are the files that Brief and the number of processes need on version 1. The library reads 24 files for the
// same request, among them the pages of each NUMA node and the time of each CPU.
var briefFiles = []struct {
	controller cgroups.Controller
	dir, name  string
	optional   bool // kernels may lack it
	set        func(s *cgroups.Stats, text string) error
}{
	{cgroups.CPU, "cpuacct", "cpuacct.usage", false,
		number(func(s *cgroups.Stats) *uint64 { return &s.CpuStats.CpuUsage.TotalUsage })},
	{cgroups.Memory, "memory", "memory.usage_in_bytes", false,
		number(func(s *cgroups.Stats) *uint64 { return &s.MemoryStats.Usage.Usage })},
	{cgroups.Memory, "memory", "memory.limit_in_bytes", false,
		number(func(s *cgroups.Stats) *uint64 { return &s.MemoryStats.Usage.Limit })},
	{cgroups.Memory, "memory", "memory.memsw.limit_in_bytes", true,
		number(func(s *cgroups.Stats) *uint64 { return &s.MemoryStats.SwapUsage.Limit })},
	{cgroups.Memory, "memory", "memory.stat", false, statistics},
	{cgroups.Pids, "pids", "pids.current", false,
		number(func(s *cgroups.Stats) *uint64 { return &s.PidsStats.Current })},
}

// number returns a function that sets a field of Stats to a number.
func number(field func(*cgroups.Stats) *uint64) func(*cgroups.Stats, string) error {
	return func(s *cgroups.Stats, text string) (err error) {
		*field(s), err = fscommon.ParseUint(strings.TrimSpace(text), 10, 64)
		return err
	}
}

// statistics reads the text of memory.stat.
func statistics(s *cgroups.Stats, text string) error {
	for line := range strings.Lines(text) {
		key, n, err := fscommon.ParseKeyValue(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return err
		}
		s.MemoryStats.Stats[key] = n
	}
	return nil
}

// maxFile is longer than each of briefFiles.
const maxFile = 16 << 10

var buffers = sync.Pool{New: func() any { return new([maxFile]byte) }}

// brief reads the open files.
func (r *Reader) brief() (*cgroups.Stats, error) {
	s := cgroups.NewStats()
	buffer := buffers.Get().(*[maxFile]byte)
	defer buffers.Put(buffer)
	for i, f := range r.files {
		if f == nil {
			continue
		}
		n, err := f.ReadAt(buffer[:], 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if err := briefFiles[i].set(s, string(buffer[:n])); err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name(), err)
		}
	}
	return s, nil
}
