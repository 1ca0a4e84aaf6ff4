package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/diskusage"
)

// attribute is the extended attribute with the project ID of a directory, in decimal.
const attribute = "trusted.berth.project"

// State describes the project quotas of a file system.
type State struct {
	// Counts: the kernel counts what each project uses. Limits: it also enforces limits.
	Counts, Limits bool
}

// StateOf returns the state of the project quotas of the file system that holds a path.
func StateOf(path string) (State, error) {
	f, err := open(path)
	if err != nil {
		return State{}, err
	}
	defer f.Close()
	s, err := stateOf(f)
	if err != nil {
		return s, fmt.Errorf("read the state of quotas of %s: %w", path, err)
	}
	return s, nil
}

// Projects gives directories project IDs.
type Projects struct {
	// Projects and Names are files whose IDs Assign does not use. The defaults are /etc/projects and /etc/projid.
	Projects, Names string

	mu sync.Mutex
}

// Assign makes an empty directory a project. It returns false if the file system does not count projects. A directory
// that is a project keeps its ID. The ID is the lowest free one, from the kubelet's first ID on.
func (p *Projects) Assign(path string) (assigned bool, err error) {
	dir, err := open(path)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	if s, err := stateOf(dir); err != nil || !s.Counts {
		return false, err
	}
	if _, ok, err := projectOf(dir); err != nil || ok {
		return ok, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	reserved, err := p.reserved()
	if err != nil {
		return false, err
	}
	for id := uint32(first); id < first+tries; id++ {
		if reserved[id] {
			continue
		}
		got, err := claim(dir, id)
		if err != nil {
			return false, fmt.Errorf("give %s the project %d: %w", path, id, err)
		}
		if got {
			return true, nil
		}
	}
	return false, fmt.Errorf("give %s a project: the %d IDs from %d on are in use", path, tries, first)
}

// claim gives a directory an ID if the ID is free. Another program may choose the same ID at this moment. So claim
// reads the count again after it has set the ID, and gives the ID up if the directory is not its only file.
func claim(dir *os.File, id uint32) (bool, error) {
	if b, err := read(dir, id); err != nil || !b.unused() {
		return false, err
	}
	if err := setProject(dir, id); err != nil {
		return false, err
	}
	b, err := read(dir, id)
	if err == nil && b.inodes == 1 {
		err = unix.Fsetxattr(int(dir.Fd()), attribute, []byte(strconv.FormatUint(uint64(id), 10)), 0)
		if err == nil {
			return true, nil
		}
		err = fmt.Errorf("set %s: %w", attribute, err)
	}
	return false, errors.Join(err, setProject(dir, 0))
}

// reserved returns the IDs in the files Projects and Names.
func (p *Projects) reserved() (map[uint32]bool, error) {
	var texts [2][]byte
	for i, name := range []string{orDefault(p.Projects, "/etc/projects"), orDefault(p.Names, "/etc/projid")} {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the project IDs of others: %w", err)
		}
		texts[i] = text
	}
	return reservedIDs(texts[0], texts[1]), nil
}

func orDefault(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}

// Limit sets how many bytes may lie below a directory; 0 is no limit. It does nothing if the directory is no project.
// The directory's own blocks do not count. A write beyond the limit fails with ENOSPC on xfs, and with EDQUOT on ext4.
func Limit(path string, bytes int64) error {
	dir, err := open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	id, ok, err := projectOf(dir)
	if err != nil || !ok {
		return err
	}
	now, err := read(dir, id)
	if err != nil {
		return fmt.Errorf("read the quota of %s: %w", path, err)
	}
	want := uint64(0)
	if bytes > 0 {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
			return &os.PathError{Op: "statfs", Path: path, Err: err}
		}
		own, err := ownBlocks(dir)
		if err != nil {
			return err
		}
		want = blocks(bytes, fs.Bsize) + uint64(own)/1024
	}
	if now.hardBlocks == want {
		return nil
	}
	if err := limit(dir, id, want); err != nil {
		return fmt.Errorf("set the quota of %s: %w", path, err)
	}
	return nil
}

// Release removes the limit of a directory that is about to be removed, so that its ID is free afterwards. It does
// nothing if the directory does not exist.
func Release(path string) error {
	if err := Limit(path, 0); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Measure returns the usage below a directory, as diskusage.Measure does, without a walk. ok is false if the directory
// is no project. The usage includes open files that no longer have a name.
func Measure(path string) (used diskusage.Usage, ok bool, err error) {
	dir, err := open(path)
	if err != nil {
		return used, false, err
	}
	defer dir.Close()
	id, ok, err := projectOf(dir)
	if err != nil || !ok {
		return used, false, err
	}
	b, err := read(dir, id)
	if err != nil {
		return used, false, fmt.Errorf("read the quota of %s: %w", path, err)
	}
	own, err := ownBlocks(dir)
	if err != nil {
		return used, false, err
	}
	return diskusage.Usage{Bytes: max(0, int64(b.space)-own), Inodes: max(0, int64(b.inodes)-1)}, true, nil
}

func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// projectOf returns the ID of an open directory, if the agent has given it one.
func projectOf(dir *os.File) (id uint32, ok bool, err error) {
	var text [16]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), attribute, text[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("read %s of %s: %w", attribute, dir.Name(), err)
	}
	parsed, err := strconv.ParseUint(string(text[:n]), 10, 32)
	if err != nil || parsed < first {
		return 0, false, fmt.Errorf("%s of %s is %q, which is no project ID of an agent", attribute, dir.Name(),
			text[:n])
	}
	return uint32(parsed), true, nil
}

// ownBlocks returns the bytes of the directory itself.
func ownBlocks(dir *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: dir.Name(), Err: err}
	}
	return st.Blocks * 512, nil
}
