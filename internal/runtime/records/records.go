package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/berth-run/berth/internal/base/boot"
	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/wake"
)

// delay is how long after a change the copy is made, so that one copy has the changes of many pods.
const delay = 2 * time.Second

// Database is containerd's metadata.DB.
type Database interface {
	View(read func(*bolt.Tx) error) error
	// RegisterMutationCallback makes the database call changed after each transaction that has changed it.
	RegisterMutationCallback(changed func(dirty bool))
}

// Records are the files of containerd's database.
type Records struct {
	path     string
	log      *slog.Logger
	unsynced bool
	restored bool

	db      Database
	changes atomic.Uint64 // transactions so far
	changed wake.Signal

	mu     sync.Mutex
	copied uint64 // the copy has this many transactions
}

// Open prepares the files before containerd opens its database at path. If the machine lost power, it puts the copy in
// the place of the database. An error means that the database cannot be used.
func Open(path string, log *slog.Logger) (*Records, error) {
	current, err := boot.ID()
	if err != nil {
		return nil, fmt.Errorf("identify this boot: %w", err)
	}
	return openIn(current, path, log)
}

// openIn is Open in the boot with this ID.
func openIn(current, path string, log *slog.Logger) (*Records, error) {
	r := &Records{path: path, log: log, changed: wake.New()}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the runtime's records: %w", err)
	}
	mark, err := os.ReadFile(r.mark())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the boot that wrote the runtime's records: %w", err)
	}
	r.unsynced = string(mark) == current
	r.restored = len(mark) > 0 && !r.unsynced
	if r.restored {
		if err := r.restore(); err != nil {
			return nil, fmt.Errorf("restore the runtime's records after a loss of power: %w", err)
		}
	}
	err = r.begin(current)
	switch {
	case err == nil:
		r.unsynced = true
	case r.unsynced: // the last agent was killed in this boot
		log.Warn("cannot copy the runtime's records, retrying after the next change", "path", path, "err", err)
	default:
		log.Warn("cannot copy the runtime's records, each change of them is synced instead", "path", path, "err", err)
		if r.restored {
			return r, r.settle()
		}
	}
	return r, nil
}

func (r *Records) copy() string { return r.path + ".synced" }
func (r *Records) mark() string { return r.path + ".boot" }

// Unsynced reports whether containerd may leave out the syncs of its transactions.
func (r *Records) Unsynced() bool { return r.unsynced }

// restore puts the copy in the place of the database. It needs no space on the disk, and a crash in the middle leaves
// both.
func (r *Records) restore() error {
	r.log.Warn("the machine lost power, using the copy of the runtime's records", "path", r.copy())
	tmp := r.path + ".restored"
	if err := checkpoint.Remove(tmp); err != nil {
		return err
	}
	err := os.Link(r.copy(), tmp)
	if errors.Is(err, fs.ErrNotExist) { // power was lost before the first copy
		return checkpoint.Remove(r.path)
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp, r.path)
}

// begin makes a copy of the database, which nobody has open, and then the mark of this boot.
func (r *Records) begin(current string) error {
	content, err := os.ReadFile(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = checkpoint.Remove(r.copy())
	case err == nil:
		err = checkpoint.Replace(r.copy(), content)
	}
	if err != nil {
		return err
	}
	return checkpoint.Replace(r.mark(), []byte(current))
}

// settle syncs the database and takes the mark back: from now on the database itself survives a loss of power.
func (r *Records) settle() error {
	if err := checkpoint.Sync(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return checkpoint.Replace(r.mark(), nil)
}

// Follow makes Sync and Run copy the changes of an open database.
func (r *Records) Follow(db Database) {
	r.db = db
	if r.unsynced {
		db.RegisterMutationCallback(func(bool) {
			r.changes.Add(1)
			r.changed.Wake()
		})
	}
}

// Run copies the database some time after a change, until ctx ends. While that fails, it retries with growing delays.
func (r *Records) Run(ctx context.Context) {
	var pace checkpoint.Pace
	for pace.Wait(ctx, r.changed.C(), delay) {
		err := r.Sync()
		switch fails, recovered := pace.Record(err); {
		case fails:
			r.log.Warn("cannot copy the runtime's records, a loss of power now would lose changes", "err", err)
		case recovered:
			r.log.Info("the runtime's records are copied again", "path", r.copy())
		}
	}
}

// Sync returns when all changes until its call survive a loss of power.
func (r *Records) Sync() error {
	if !r.unsynced {
		return nil
	}
	wanted := r.changes.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.copied >= wanted {
		return nil
	}
	has := r.changes.Load() // the transaction that reads begins later, and so sees these
	var content bytes.Buffer
	err := r.db.View(func(tx *bolt.Tx) error {
		content.Grow(int(tx.Size()))
		_, err := tx.WriteTo(&content)
		return err
	})
	if err == nil {
		err = checkpoint.Replace(r.copy(), content.Bytes())
	}
	if err != nil {
		return fmt.Errorf("copy the runtime's records: %w", err)
	}
	r.copied = has
	return nil
}

// Close makes the database itself survive a loss of power. Call it when containerd has closed the database.
func (r *Records) Close() {
	if !r.unsynced {
		return
	}
	if err := r.settle(); err != nil {
		r.log.Warn("cannot sync the runtime's records, the next boot will use their last copy", "path", r.path, "err",
			err)
	}
}
