package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/safepath"
)

// The part of a volume that pods share is in
//
//	<root>/plugins/<kind>/<hash of its StageID>/
//		id                     the StageID
//		users/<uid>~<volume>   an empty file for each volume of a pod that uses it
//		globalmount            Request.Stage
//
// A user's file is written before Stage and deleted after Unstage. If either is interrupted, the next setup or removal
// of the pod repeats it.
const (
	pluginsDir = "plugins"
	stageMount = "globalmount"
	stageUsers = "users"
	stageID    = "id"
)

// shares are the parts of volumes that pods share, with their users.
type shares struct {
	root  string // the agent's directory
	kinds []Kind
	locks lock.Keyed // by the directory of a part
}

// stage makes the shared part of a volume and sets r.Stage.
func (s *shares) stage(ctx context.Context, k Stager, r *Request) error {
	id := k.StageID(*r)
	if id == "" {
		return nil
	}
	dir := s.stageDir(k, id)
	unlock, err := s.locks.Lock(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := writeUser(dir, Use{StageID: id, UID: r.Pod.UID, Volume: r.Volume.Name}); err != nil {
		return err
	}
	r.Stage = filepath.Join(dir, stageMount)
	if err := k.Stage(ctx, *r); err != nil {
		return fmt.Errorf("stage the volume for the node: %w", err)
	}
	return nil
}

// Adopt is the method of Volumes.
func (s *shares) Adopt() error {
	var errs []error
	for _, k := range s.kinds {
		a, ok := k.(Adopter)
		if !ok {
			continue
		}
		found, err := a.Uses()
		errs = append(errs, err)
		for _, u := range found {
			errs = append(errs, s.adopt(a, u))
		}
	}
	return errors.Join(errs...)
}

func (s *shares) adopt(k Stager, u Use) error {
	if err := safepath.Name(string(u.UID)); err != nil {
		return err
	}
	dir := s.stageDir(k, u.StageID)
	marks, _ := filepath.Glob(filepath.Join(dir, stageUsers, string(u.UID)+"~*")) // an error would mean a bad pattern
	if len(marks) > 0 {
		return nil
	}
	return writeUser(dir, u)
}

func (s *shares) stageDir(k Stager, id string) string {
	hash := sha256.Sum256([]byte(id))
	return filepath.Join(s.root, pluginsDir, k.Dir(), hex.EncodeToString(hash[:16]))
}

// writeUser writes a user's file and the StageID of the shared part.
func writeUser(dir string, u Use) error {
	for _, sub := range []string{stageUsers, stageMount} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			return err
		}
	}
	if err := checkpoint.Replace(filepath.Join(dir, stageID), []byte(u.StageID)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, stageUsers, string(u.UID)+"~"+u.Volume), nil, 0o600)
}

// release deletes a pod's user files and undoes the shared parts that no other pod uses.
func (s *shares) release(ctx context.Context, uid types.UID) error {
	uses, err := s.uses()
	var errs []error
	for _, u := range uses {
		if u.uid == uid {
			errs = append(errs, s.releaseOne(ctx, u))
		}
	}
	return errors.Join(append(errs, err)...)
}

func (s *shares) releaseOne(ctx context.Context, u use) error {
	unlock, err := s.locks.Lock(ctx, u.dir)
	if err != nil {
		return err
	}
	defer unlock()
	marks, err := os.ReadDir(filepath.Join(u.dir, stageUsers))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mark := filepath.Join(u.dir, stageUsers, u.mark)
	if slices.ContainsFunc(marks, func(e os.DirEntry) bool { return e.Name() != u.mark }) {
		return safepath.IgnoreMissing(os.Remove(mark))
	}
	kind := filepath.Base(filepath.Dir(u.dir))
	for _, k := range s.kinds {
		if stager, ok := k.(Stager); ok && k.Dir() == kind {
			if err := stager.Unstage(ctx, filepath.Join(u.dir, stageMount)); err != nil {
				return fmt.Errorf("unstage %s: %w", u.dir, err)
			}
			break
		}
	}
	// One entry at a time, so that unexpected content, which may be a user's data, is kept.
	for _, path := range []string{filepath.Join(u.dir, stageMount), mark, filepath.Join(u.dir, stageUsers),
		filepath.Join(u.dir, stageID), u.dir} {
		if err := checkpoint.Remove(path); err != nil {
			return fmt.Errorf("unstage %s: %w", u.dir, err)
		}
	}
	return nil
}

// Orphans is the method of Volumes.
func (s *shares) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	uses, err := s.uses()
	var orphans []types.UID
	for _, u := range uses {
		if !known(u.uid) {
			orphans = append(orphans, u.uid)
		}
	}
	slices.Sort(orphans)
	return slices.Compact(orphans), err
}

// use is the file of one user of a shared part.
type use struct {
	dir, mark string
	uid       types.UID
}

func (s *shares) uses() ([]use, error) {
	dirs, err := list(filepath.Join(s.root, pluginsDir))
	if err != nil {
		return nil, err
	}
	var all []use
	for _, dir := range dirs {
		marks, err := os.ReadDir(filepath.Join(dir, stageUsers))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue // drivers and kubelets have directories of their own there
		}
		if err != nil {
			return nil, err
		}
		for _, m := range marks {
			uid, _, ok := strings.Cut(m.Name(), "~")
			if ok && safepath.Name(uid) == nil {
				all = append(all, use{dir: dir, mark: m.Name(), uid: types.UID(uid)})
			}
		}
	}
	return all, nil
}
