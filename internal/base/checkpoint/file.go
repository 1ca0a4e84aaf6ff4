package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// DamagedError is the error for a file that could not be used and was moved aside.
type DamagedError struct {
	// Path of the file.
	Path string
	// Moved is the new path. It is empty if moving the file failed too.
	Moved string
	// Err is the reason why the file cannot be used.
	Err error
}

func (e *DamagedError) Error() string {
	if e.Moved == "" {
		return fmt.Sprintf("state file %s %v", e.Path, e.Err)
	}
	return fmt.Sprintf("state file %s %v; it is kept as %s", e.Path, e.Err, filepath.Base(e.Moved))
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Damaged splits the error of Dir.LoadAll into the errors of damaged files, which were moved aside, and any other
// error.
func Damaged(err error) (damaged []error, other error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if _, ok := errors.AsType[*DamagedError](err); ok {
			damaged = append(damaged, err)
		} else {
			other = errors.Join(other, err)
		}
	}
	return damaged, other
}

// IsDiskFull reports whether err is caused by a disk or a quota without room.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Save makes v the content of the file at path, whose directory must exist. If it fails, the file stays as it was. The
// mode is 0600.
func Save[T any](path string, f Format, v T) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode state file %s: %w", path, err)
	}
	return replace(path, seal(f.Version, data), true)
}

// Replace is Save for content in another program's format. It writes the content unchanged.
func Replace(path string, content []byte) error { return replace(path, content, true) }

// ReplaceUnsynced is Replace for content that may be lost or damaged in a power cut.
func ReplaceUnsynced(path string, content []byte) error { return replace(path, content, false) }

// Remove deletes a file of Save or Replace, and what a crash during a write has left beside it. A file that does not
// exist is no error. The removal may be undone by a power cut.
func Remove(path string) error {
	return errors.Join(remove(path+tmpSuffix, false), remove(path, false))
}

// Load returns the content of the file at path. The error is fs.ErrNotExist if there is no file. It is a *DamagedError
// if the file was moved aside because it is damaged or from a newer program; the caller then continues with the zero
// value and reports the error.
func Load[T any](path string, f Format) (T, error) {
	var v, none T
	content, err := os.ReadFile(path)
	if err != nil {
		return none, fmt.Errorf("load state file: %w", err)
	}
	data, err := f.open(content)
	if err == nil {
		if err = json.Unmarshal(data, &v); err == nil {
			if err = check(v); err == nil {
				return v, nil
			}
		}
		err = fmt.Errorf("has data of another shape: %w", err)
	}
	return none, moveAside(path, err)
}

// Checker is implemented by values that JSON can decode although no owner writes them, such as a list with null. Load
// treats a file with such a value as damaged.
type Checker interface{ Check() error }

func check(v any) error {
	if c, ok := v.(Checker); ok {
		return c.Check()
	}
	return nil
}

// moveAside renames a file that cannot be used, so that the next save does not overwrite it. It returns the error to
// report.
func moveAside(path string, why error) error {
	suffix := "corrupt"
	if newer, ok := errors.AsType[*newerError](why); ok {
		suffix = fmt.Sprintf("version-%d", newer.found)
	}
	to := fmt.Sprintf("%s.%s-%s", path, suffix, time.Now().UTC().Format("20060102T150405.000000000Z"))
	if err := os.Rename(path, to); err != nil {
		return &DamagedError{Path: path, Err: fmt.Errorf("%w; moving it aside failed too: %w", why, err)}
	}
	return &DamagedError{Path: path, Moved: to, Err: why}
}

// replace writes content to a temporary file with a fixed name. So a crash leaves at most one such file, which the next
// save overwrites.
func replace(path string, content []byte, synced bool) error {
	tmp := path + tmpSuffix
	err := writeFile(tmp, content, synced)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // frees its room on a full disk; the first error matters more
		return fmt.Errorf("save state file %s: %w", path, err)
	}
	if !synced {
		return nil
	}
	if err := Sync(filepath.Dir(path)); err != nil {
		return fmt.Errorf("save state file %s: %w", path, err)
	}
	return nil
}

func writeFile(path string, content []byte, synced bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && synced {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Sync makes the content of a file survive a power cut, or the renames and removals in a directory.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// remove deletes a file. A file that does not exist is no error. Its directory is synced all the same: an earlier
// removal may have failed just there, and a power cut would bring the file back.
func remove(path string, synced bool) error {
	if err := ignoreAbsent(os.Remove(path)); err != nil || !synced {
		return err
	}
	return ignoreAbsent(Sync(filepath.Dir(path)))
}

// prove makes a file in a directory and removes it. The kernel reports only once that it could not write: the next sync
// of a directory succeeds, although the file system has ended for good and nothing was written. But such a file system
// lets nobody make a file (jbd2 after an abort of its journal).
func prove(dir string) error {
	path := filepath.Join(dir, "proof"+suffix+tmpSuffix)
	if err := writeFile(path, nil, true); err != nil {
		return err
	}
	return remove(path, true)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
