package records

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/berth-run/berth/internal/base/wake"
)

// database is a Database as containerd opens it.
type database struct {
	*bolt.DB
	changed func(bool)
}

func (d *database) RegisterMutationCallback(changed func(bool)) { d.changed = changed }

func open(t *testing.T, path, boot string) (*Records, *database) {
	t.Helper()
	r, err := openIn(boot, path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: r.Unsynced()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	d := &database{DB: db, changed: func(bool) {}}
	r.Follow(d)
	return r, d
}

func (d *database) put(t *testing.T, name string) {
	t.Helper()
	err := d.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("images"))
		if err != nil {
			return err
		}
		return b.Put([]byte(name), nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	d.changed(false)
}

func (d *database) names(t *testing.T) (names string) {
	t.Helper()
	err := d.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket([]byte("images")); b != nil {
			return b.ForEach(func(k, _ []byte) error { names += string(k); return nil })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// end closes the database as a process that is killed does, or with its Records.
func end(t *testing.T, r *Records, d *database, killed bool) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if killed {
		return
	}
	r.Close()
}

// damage makes the database unreadable, as a loss of power may.
func damage(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("half a page"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	for _, tt := range []struct {
		name      string
		killed    bool // the first agent is killed
		boot      string
		damaged   bool
		want      string
		restored  bool
		unstarted bool // nothing is synced by the first agent
	}{
		{name: "ended, same boot", boot: "1", want: "ab"},
		{name: "ended, next boot", boot: "2", want: "ab"},
		{name: "killed, same boot", killed: true, boot: "1", want: "ab"},
		{name: "killed, next boot", killed: true, boot: "2", want: "a", restored: true},
		{name: "loss of power", killed: true, boot: "2", damaged: true, want: "a", restored: true},
		{name: "loss of power before the first copy", killed: true, boot: "2", damaged: true, restored: true,
			unstarted: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bolt", "meta.db")
			r, db := open(t, path, "1")
			if !r.Unsynced() || r.restored {
				t.Fatalf("first start: unsynced %v, restored %v", r.Unsynced(), r.restored)
			}
			db.put(t, "a")
			if !tt.unstarted {
				if err := r.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			db.put(t, "b")
			end(t, r, db, tt.killed)
			if tt.damaged {
				damage(t, path)
			}
			r, db = open(t, path, tt.boot)
			if got := db.names(t); got != tt.want || r.restored != tt.restored || !r.Unsynced() {
				t.Errorf("images %q, restored %v, unsynced %v, want %q, %v, true", got, r.restored, r.Unsynced(),
					tt.want, tt.restored)
			}
			// A third agent finds what the second had, also if that one was killed before it changed anything.
			end(t, r, db, true)
			damage(t, path)
			if _, db = open(t, path, "3"); db.names(t) != tt.want {
				t.Errorf("images of the third agent %q, want %q", db.names(t), tt.want)
			}
		})
	}
}

// An agent that is killed while it restores the copy leaves both files and the old mark.
func TestAKilledRestorationIsRepeated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	r, db := open(t, path, "1")
	db.put(t, "a")
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	end(t, r, db, true)
	damage(t, path)
	for range 2 {
		if err := r.restore(); err != nil {
			t.Fatal(err)
		}
	}
	if _, db = open(t, path, "2"); db.names(t) != "a" {
		t.Errorf("images %q, want a", db.names(t))
	}
}

// Without room for a copy, containerd syncs, and what it writes counts in the next boot.
func TestWithoutACopyTransactionsAreSynced(t *testing.T) {
	for _, lost := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "meta.db")
		r, db := open(t, path, "1")
		db.put(t, "a")
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		end(t, r, db, lost)
		// A directory in the place of the temporary file makes the copy impossible.
		obstacle := filepath.Join(path+".synced.tmp", "full")
		if err := os.MkdirAll(obstacle, 0o700); err != nil {
			t.Fatal(err)
		}
		if r, db = open(t, path, "2"); r.Unsynced() {
			t.Error("no syncs, and no copy")
		}
		db.put(t, "b")
		end(t, r, db, true)
		if err := os.RemoveAll(filepath.Dir(obstacle)); err != nil {
			t.Fatal(err)
		}
		if r, db = open(t, path, "3"); db.names(t) != "ab" || !r.Unsynced() {
			t.Errorf("lost %v: images %q, unsynced %v, want ab, true", lost, db.names(t), r.Unsynced())
		}
	}
}

func TestOneCopyHasTheChangesOfSomeTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	r, db := open(t, path, "1")
	synctest.Test(t, func(t *testing.T) {
		r.changed = wake.New()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		for _, name := range []string{"a", "b", "c"} {
			db.put(t, name)
		}
		synctest.Wait()
		if _, err := os.Stat(r.copy()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a copy is there at once: %v", err)
		}
		time.Sleep(delay)
		synctest.Wait()
		if copied := r.copied; copied != 3 {
			t.Errorf("the copy has %d changes, want 3", copied)
		}
		cancel()
		<-ended
	})
}
