package disk

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
)

// SectorSize is the unit that the disk writes completely or not at all, in bytes.
const SectorSize = 512

// Disk is a file and the writes that it lacks yet. It has one user at a time.
type Disk struct {
	file   *os.File
	size   int64
	newest map[int64][]byte // by number, the sectors that differ from the file
	cached []write          // since the last flush, the oldest first
}

// write has sectors by their number.
type write map[int64][]byte

func newWrite(p []byte, off int64) write {
	w := write{}
	for data := range slices.Chunk(p, SectorSize) {
		w[off/SectorSize] = data
		off += SectorSize
	}
	return w
}

// New returns a disk of size bytes on file, which begins with zeros where the file has no content.
func New(file *os.File, size int64) (*Disk, error) {
	if size%SectorSize != 0 {
		return nil, fmt.Errorf("make a disk: %d bytes are no multiple of %d", size, SectorSize)
	}
	if err := file.Truncate(size); err != nil {
		return nil, fmt.Errorf("make a disk: %w", err)
	}
	return &Disk{file: file, size: size, newest: map[int64][]byte{}}, nil
}

// Read fills p with the newest content at off.
func (d *Disk) Read(p []byte, off int64) error {
	if err := d.check(p, off); err != nil {
		return err
	}
	if _, err := d.file.ReadAt(p, off); err != nil {
		return err
	}
	for at := 0; at < len(p); at += SectorSize {
		copy(p[at:], d.newest[(off+int64(at))/SectorSize])
	}
	return nil
}

// Write puts p into the cache. The disk keeps p.
func (d *Disk) Write(p []byte, off int64) error {
	if err := d.check(p, off); err != nil {
		return err
	}
	w := newWrite(p, off)
	maps.Copy(d.newest, w)
	d.cached = append(d.cached, w)
	return nil
}

// WriteThrough writes p to the file. Cached writes of the same sectors are older, so they have no effect any more.
func (d *Disk) WriteThrough(p []byte, off int64) error {
	if err := d.check(p, off); err != nil {
		return err
	}
	for i := range newWrite(p, off) {
		for _, w := range d.cached {
			delete(w, i)
		}
		delete(d.newest, i)
	}
	_, err := d.file.WriteAt(p, off)
	return err
}

// Flush writes the cache to the file.
func (d *Disk) Flush() error {
	for i, data := range d.newest {
		if _, err := d.file.WriteAt(data, i*SectorSize); err != nil {
			return err
		}
	}
	clear(d.newest)
	d.cached = nil
	return nil
}

// Loss counts the cached writes of a cut.
type Loss struct {
	Kept, Lost, Torn int
}

// Cut ends the cache. How much of it survives is random too: between nothing and everything.
func (d *Disk) Cut(random *rand.Rand) (Loss, error) {
	var loss Loss
	survive := random.Float64()
	for _, w := range d.cached {
		keep := write{}
		switch {
		case random.Float64() < survive:
			keep = w
			loss.Kept++
		case len(w) > 1 && random.IntN(4) == 0:
			for _, i := range slices.Sorted(maps.Keys(w)) {
				if random.IntN(2) == 0 {
					keep[i] = w[i]
				}
			}
			loss.Torn++
		default:
			loss.Lost++
		}
		for i, data := range keep {
			if _, err := d.file.WriteAt(data, i*SectorSize); err != nil {
				return loss, fmt.Errorf("cut the power of a disk: %w", err)
			}
		}
	}
	clear(d.newest)
	d.cached = nil
	return loss, nil
}

func (d *Disk) check(p []byte, off int64) error {
	if len(p)%SectorSize != 0 || off%SectorSize != 0 || off < 0 || off+int64(len(p)) > d.size {
		return fmt.Errorf("%d bytes at %d are not whole sectors of a disk of %d bytes", len(p), off, d.size)
	}
	return nil
}
