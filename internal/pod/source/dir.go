package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/model/pod"
)

// settleTime is how long a file may be gone, or make no sense, before that is
// believed: editors move a file away before they write it anew, and scripts
// write in several steps.
const settleTime = 200 * time.Millisecond

// sink takes what origins want.
type sink interface {
	put(origin string, w wanted, problems []Problem, at time.Time)
	drop(origin string, at time.Time)
}

// dir reads the manifests of a directory, or one file. It is driven by inotify
// and checks everything again each period, which is all that is left where
// there is no inotify (some network file systems) or no instance to be had.
//
//	CLOSE_WRITE, MOVED_TO ----------> look at once
//	MODIFY -------------------------> wait for CLOSE_WRITE
//	CREATE, gone, cannot be parsed -> look again after settleTime
type dir struct {
	path   string
	node   string
	period time.Duration
	settle time.Duration // settleTime, but for tests
	out    sink
	log    *slog.Logger

	notify *inotify.Watcher
	place  place
	info   fs.FileInfo // of what is at path; nil when nothing is
	arrive string      // the name that has to appear first when nothing is
	files  map[string]*file
}

// place is what is at the path.
type place int

const (
	nothing place = iota
	directory
	single
)

// file is what is known of one manifest file, by its path.
type file struct {
	read     bool // sum is that of the last content
	sum      [sha256.Size]byte
	wanted   wanted
	problems []Problem
	told     bool      // problems were passed on
	faulty   time.Time // has problems since; zero: it has none
	gone     time.Time // not there since; zero: it is
	writing  time.Time // last written to, and not closed yet; zero: closed
	due      time.Time // look again then; zero: when something happens
}

func newDir(o Options, out sink) *dir {
	return &dir{
		path: filepath.Clean(o.Path), node: o.NodeName, period: o.Period, settle: cmp.Or(o.settle, settleTime),
		out: out, log: o.Log, files: map[string]*file{},
	}
}

// run reads the directory until ctx ends. It calls seen when it has been read once.
func (d *dir) run(ctx context.Context, seen func()) error {
	events := d.watchStart()
	defer d.watchEnd()
	relist := time.NewTicker(d.period)
	defer relist.Stop()
	again := time.NewTimer(0)
	defer again.Stop()

	d.refresh(time.Now(), true, seen)
	for {
		again.Reset(d.untilDue(time.Now()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case batch := <-events:
			d.handle(batch, time.Now(), seen)
		case <-relist.C:
			d.refresh(time.Now(), d.replaced(), seen)
		case <-again.C:
			d.lookDue(time.Now())
		}
	}
}

func (d *dir) watchStart() <-chan []inotify.Event {
	n, err := inotify.Start()
	if err != nil {
		d.log.Warn("manifests are only checked from time to time", "path", d.path, "period", d.period, "err", err)
		return nil
	}
	d.notify = n
	return n.Events()
}

func (d *dir) watchEnd() {
	if d.notify != nil {
		d.notify.Close()
	}
}

// refresh looks at everything, after aiming anew if the path leads elsewhere now.
func (d *dir) refresh(now time.Time, aim bool, seen func()) {
	err := error(nil)
	if aim {
		err = d.aim()
	}
	if err == nil {
		err = d.scan(now)
	}
	at := d.path + "/" // no file's path
	if err != nil {
		d.out.put(at, wanted{}, []Problem{{Origin: d.path, Err: fmt.Errorf("read manifests: %w", err)}}, now)
		return
	}
	d.out.drop(at, now)
	seen()
}

// replaced says whether something else is at the path than what was aimed at.
func (d *dir) replaced() bool {
	info, err := os.Stat(d.path)
	if err != nil || d.info == nil {
		return d.info != nil || !errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(info, d.info)
}

// aim opens what is at the path and watches it, or what is above it. The watch
// is set first, so that what happens from here on is either seen or told. While
// directories come and go under its hands it tries again, then leaves it to the
// next relist. A file that was being written is read then as it is: its close may
// have been told to the watch that is given up.
func (d *dir) aim() error {
	for _, f := range d.files {
		f.writing = time.Time{}
	}
	const tries = 20
	for range tries {
		again, err := d.aimOnce()
		if !again {
			return err
		}
	}
	return nil
}

func (d *dir) aimOnce() (again bool, err error) {
	d.info, d.place = nil, nothing
	info, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.awaitArrival(), nil
	case err != nil:
		return false, err
	case !info.IsDir():
		d.place, d.info = single, info
		return !d.watch(filepath.Dir(d.path), inotify.Entries), nil
	}
	if !d.watch(d.path, inotify.Entries) {
		return true, nil
	}
	d.place, d.info = directory, info
	return false, nil
}

// awaitArrival watches the nearest directory above that exists. It says whether
// that has changed already.
func (d *dir) awaitArrival() (again bool) {
	above := d.path
	for {
		above, d.arrive = filepath.Dir(above), filepath.Base(above)
		if info, err := os.Stat(above); err == nil && info.IsDir() || above == filepath.Dir(above) {
			break
		}
	}
	if !d.watch(above, inotify.Arrival) {
		return true
	}
	_, err := os.Lstat(filepath.Join(above, d.arrive))
	return err == nil
}

// watch says by false that there is no such directory (any more).
func (d *dir) watch(path string, mask uint32) bool {
	if d.notify == nil {
		return true
	}
	err := d.notify.Aim(path, mask)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("manifests are only checked from time to time", "period", d.period, "err", err)
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// scan looks at every file there is and at every file that is known.
func (d *dir) scan(now time.Time) error {
	paths, err := d.list()
	if err != nil {
		return err
	}
	for path := range d.files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if f := d.files[path]; f != nil && now.Sub(f.writing) < d.period {
			continue // being written: its close will tell
		}
		d.look(path, now)
	}
	return nil
}

func (d *dir) list() ([]string, error) {
	switch d.place {
	case single:
		return []string{d.path}, nil
	case directory:
		entries, err := os.ReadDir(d.path)
		if err != nil {
			return nil, err
		}
		var paths []string
		for _, e := range entries {
			if eligible(e.Name()) && !e.IsDir() {
				paths = append(paths, filepath.Join(d.path, e.Name()))
			}
		}
		return paths, nil
	default:
		return nil, nil
	}
}

// handle takes one batch of events: it notes what they say of each file, then
// looks once at each that can be read now, or at everything. What comes after an
// event that ends the watch is of a watch that is no more.
func (d *dir) handle(batch []inotify.Event, now time.Time, seen func()) {
	var touched []string
	everything := false
	moved := map[uint32]string{}
	for _, e := range batch {
		if !d.notify.Current(e) {
			continue
		}
		if d.restructures(e) {
			d.refresh(now, true, seen)
			return
		}
		everything = everything || d.swapped(e)
		path, ours := d.pathOf(e.Name)
		if ours && d.note(path, e, moved, now) && !slices.Contains(touched, path) {
			touched = append(touched, path)
		}
	}
	if everything {
		d.refresh(now, false, seen)
		return
	}
	for _, path := range touched {
		if f := d.files[path]; f == nil || f.writing.IsZero() {
			d.look(path, now)
		}
	}
}

// pathOf is the file that a name in the watched directory stands for, if it is one to read.
func (d *dir) pathOf(name string) (string, bool) {
	switch d.place {
	case directory:
		return filepath.Join(d.path, name), eligible(name)
	case single:
		return d.path, name == filepath.Base(d.path)
	default:
		return "", false
	}
}

// restructures says whether an event means that something else is to be watched.
func (d *dir) restructures(e inotify.Event) bool {
	switch {
	case e.Mask&inotify.Lost != 0:
		return true
	case d.place == nothing:
		return e.Name == d.arrive
	default:
		return d.place == single && e.Name == filepath.Base(d.path) && e.Mask&unix.IN_ISDIR != 0
	}
}

// swapped recognises the change of a hidden link through which the files of the
// directory are reached, such as ..data of a mounted ConfigMap.
func (d *dir) swapped(e inotify.Event) bool {
	if d.place != directory || e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE) == 0 || e.Name == "" ||
		e.Name[0] != '.' {
		return false
	}
	info, err := os.Lstat(filepath.Join(d.path, e.Name))
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// note records an event of a file and says whether the file is to be looked at now.
func (d *dir) note(path string, e inotify.Event, moved map[uint32]string, now time.Time) bool {
	f := d.files[path]
	switch {
	case e.Mask&unix.IN_MODIFY != 0:
		d.entry(path).writing = now
		return false
	case e.Mask&unix.IN_CREATE != 0 && !isWhole(path):
		d.entry(path).due = now.Add(d.settle)
		return false
	case e.Mask&unix.IN_MOVED_FROM != 0:
		moved[e.Cookie] = path
	case e.Mask&unix.IN_MOVED_TO != 0:
		if from := d.files[moved[e.Cookie]]; from != nil {
			from.gone = now.Add(-d.settle) // renamed: no doubt that it is gone
		}
	}
	if f != nil && e.Mask&unix.IN_ATTRIB == 0 {
		f.writing = time.Time{}
	}
	return true
}

// isWhole says whether a new name has all its content from the start, as links have.
func isWhole(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return true // gone again, which look finds out
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode()&fs.ModeSymlink != 0 || ok && sys.Nlink > 1
}

func (d *dir) entry(path string) *file {
	if d.files[path] == nil {
		d.files[path] = &file{}
	}
	return d.files[path]
}

// untilDue is how long nothing is to be done without an event.
func (d *dir) untilDue(now time.Time) time.Duration {
	wait := d.period
	for _, f := range d.files {
		if !f.due.IsZero() {
			wait = min(wait, max(0, f.due.Sub(now)))
		}
	}
	return wait
}

func (d *dir) lookDue(now time.Time) {
	var due []string
	for path, f := range d.files {
		if !f.due.IsZero() && !f.due.After(now) {
			f.due = time.Time{}
			if f.writing.IsZero() {
				due = append(due, path)
			}
		}
	}
	slices.Sort(due)
	for _, path := range due {
		d.look(path, now)
	}
}

// look reads a file and passes on what it wants now.
func (d *dir) look(path string, now time.Time) {
	text, err := d.read(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoManifest) {
		d.lookGone(path, now)
		return
	}
	f := d.entry(path)
	f.gone = time.Time{}
	if err != nil {
		f.read = false
		d.pass(path, f, []Problem{{Origin: path, Err: fmt.Errorf("read manifest %s: %w", path, err)}}, now)
		return
	}
	sum := sha256.Sum256(text)
	if f.read && f.sum == sum {
		if len(f.problems) > 0 && !f.told {
			d.pass(path, f, f.problems, now)
		}
		return
	}
	f.read, f.sum = true, sum
	w, problems := build(text, path, pod.SourceFile, d.node)
	f.wanted = keep(f.wanted, w, len(problems) > 0)
	d.pass(path, f, problems, now)
}

// pass hands on what a file wants at once, and its problems once it has had some for settleTime.
func (d *dir) pass(path string, f *file, problems []Problem, now time.Time) {
	f.problems, f.told, f.due = problems, false, time.Time{}
	switch {
	case len(problems) == 0:
		f.faulty = time.Time{}
	case f.faulty.IsZero():
		f.faulty = now
		fallthrough
	case now.Sub(f.faulty) < d.settle:
		f.due = f.faulty.Add(d.settle)
		problems = nil
	default:
		f.told = true
	}
	d.out.put(path, f.wanted, problems, now)
}

// lookGone forgets a file that has not been there for settleTime.
func (d *dir) lookGone(path string, now time.Time) {
	f := d.files[path]
	if f == nil {
		return
	}
	if f.gone.IsZero() {
		f.gone = now
	}
	if left := f.gone.Add(d.settle).Sub(now); left > 0 && !f.wanted.empty() {
		f.due = now.Add(left)
		return
	}
	delete(d.files, path)
	d.out.drop(path, now)
}

func (d *dir) read(path string) ([]byte, error) {
	switch {
	case d.place == single && path == d.path:
		return readAt(path)
	case d.place == directory && filepath.Dir(path) == d.path:
		return readIn(d.path, filepath.Base(path))
	default:
		return nil, fs.ErrNotExist // of a directory or file that was here before
	}
}
