package directory

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
	"github.com/berth-run/berth/internal/pod/source/content"
)

// settleTime is how long a file must be missing or invalid before that counts. Editors move a file away before they
// write it again, and scripts write a file in several steps.
const settleTime = 200 * time.Millisecond

// Directory reads the manifests of a directory, or one file. It reacts to inotify events and also checks everything
// once a period. The periodic check is all that works without inotify, for example on some network file systems.
//
//	CLOSE_WRITE, MOVED_TO ----> read at once
//	MODIFY -------------------> wait for CLOSE_WRITE
//	CREATE, missing, invalid -> read again after settleTime
type Directory struct {
	path   string
	node   string
	period time.Duration
	settle time.Duration // settleTime, except in tests
	out    content.Sink
	log    *slog.Logger

	notify *inotify.Watcher
	place  place
	info   fs.FileInfo // of the directory or file at path; nil if there is none
	arrive string      // the name that must appear first if there is nothing at path
	files  map[string]*file
}

// place is the kind of file at the path.
type place int

const (
	nothing place = iota
	directory
	single
)

// file is the state of one manifest file.
type file struct {
	read     bool // sum is valid
	sum      [sha256.Size]byte
	wanted   content.Wanted
	problems []content.Problem
	reported bool      // the problems were passed on
	faulty   time.Time // since when it has problems; zero: it has none
	gone     time.Time // since when it is missing; zero: it exists
	writing  time.Time // last write, until it is closed; zero: closed
	due      time.Time // when to read it again; zero: at the next event
}

// Options configures a Directory.
type Options struct {
	// Path is the directory or file.
	Path string
	// NodeName is set in every pod, and appended to its name.
	NodeName string
	// Period is the time between two full checks.
	Period time.Duration
	// Settle is how long a file must be missing or invalid before that counts. 0: settleTime.
	Settle time.Duration
	Log    *slog.Logger
}

// New returns a Directory that writes to out. It reads nothing before Run.
func New(o Options, out content.Sink) *Directory {
	return &Directory{
		path: filepath.Clean(o.Path), node: o.NodeName, period: o.Period, settle: cmp.Or(o.Settle, settleTime),
		out: out, log: o.Log, files: map[string]*file{},
	}
}

// Run reads the directory until ctx ends. It calls seen after each complete read.
func (d *Directory) Run(ctx context.Context, seen func()) error {
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

func (d *Directory) watchStart() <-chan []inotify.Event {
	n, err := inotify.Start()
	if err != nil {
		d.log.Warn("cannot watch manifests, checking them once a period only", "path", d.path, "period", d.period,
			"err", err)
		return nil
	}
	d.notify = n
	return n.Events()
}

func (d *Directory) watchEnd() {
	if d.notify != nil {
		d.notify.Close()
	}
}

// refresh reads everything. If aim, it first finds out again what is at the path.
func (d *Directory) refresh(now time.Time, aim bool, seen func()) {
	err := error(nil)
	if aim {
		err = d.aim()
	}
	if err == nil {
		err = d.scan(now)
	}
	at := d.path + "/" // differs from every file's path
	if err != nil {
		d.out.Put(at, content.Wanted{}, []content.Problem{{Origin: d.path, Err: fmt.Errorf("read manifests: %w", err)}},
			now)
		return
	}
	d.out.Drop(at, now)
	seen()
}

// replaced reports whether a different file is at the path since aim.
func (d *Directory) replaced() bool {
	info, err := os.Stat(d.path)
	if err != nil || d.info == nil {
		return d.info != nil || !errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(info, d.info)
}

// aim opens what is at the path and watches it, or its nearest existing parent. It sets the watch before reading, so
// that no change is missed. While directories change meanwhile it tries again, up to a limit; the next relist does the
// rest. It also ends the wait for files that are being written, because the old watch may have received their close.
func (d *Directory) aim() error {
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

func (d *Directory) aimOnce() (again bool, err error) {
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

// awaitArrival watches the nearest existing parent. It reports whether that has changed already.
func (d *Directory) awaitArrival() (again bool) {
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

// watch returns false if the directory does not exist any more.
func (d *Directory) watch(path string, mask uint32) bool {
	if d.notify == nil {
		return true
	}
	err := d.notify.Aim(path, mask)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("cannot watch manifests, checking them once a period only", "period", d.period, "err", err)
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// scan reads all present and all known files.
func (d *Directory) scan(now time.Time) error {
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
			continue // its close is an event
		}
		d.look(path, now)
	}
	return nil
}

func (d *Directory) list() ([]string, error) {
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

// handle processes one batch of events. It first records what the events say about each file, then reads each changed
// file once, or everything. It skips events of a watch that was replaced.
func (d *Directory) handle(batch []inotify.Event, now time.Time, seen func()) {
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

// pathOf returns the path for a name in the watched directory, and whether that file is read.
func (d *Directory) pathOf(name string) (string, bool) {
	switch d.place {
	case directory:
		return filepath.Join(d.path, name), eligible(name)
	case single:
		return d.path, name == filepath.Base(d.path)
	default:
		return "", false
	}
}

// restructures reports whether something else must be watched after an event.
func (d *Directory) restructures(e inotify.Event) bool {
	switch {
	case e.Mask&inotify.Lost != 0:
		return true
	case d.place == nothing:
		return e.Name == d.arrive
	default:
		return d.place == single && e.Name == filepath.Base(d.path) && e.Mask&unix.IN_ISDIR != 0
	}
}

// swapped reports whether an event changed a hidden link that leads to the files of the directory, such as ..data of a
// mounted ConfigMap.
func (d *Directory) swapped(e inotify.Event) bool {
	if d.place != directory || e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE) == 0 || e.Name == "" ||
		e.Name[0] != '.' {
		return false
	}
	info, err := os.Lstat(filepath.Join(d.path, e.Name))
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// note records an event of a file and reports whether to read the file now.
func (d *Directory) note(path string, e inotify.Event, moved map[uint32]string, now time.Time) bool {
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
			from.gone = now.Add(-d.settle) // renamed, so it is certainly gone
		}
	}
	if f != nil && e.Mask&unix.IN_ATTRIB == 0 {
		f.writing = time.Time{}
	}
	return true
}

// isWhole reports whether a new name has all its content from the start, as a link has.
func isWhole(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return true // gone again; look handles that
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode()&fs.ModeSymlink != 0 || ok && sys.Nlink > 1
}

func (d *Directory) entry(path string) *file {
	if d.files[path] == nil {
		d.files[path] = &file{}
	}
	return d.files[path]
}

// untilDue returns how long to wait if no event arrives.
func (d *Directory) untilDue(now time.Time) time.Duration {
	wait := d.period
	for _, f := range d.files {
		if !f.due.IsZero() {
			wait = min(wait, max(0, f.due.Sub(now)))
		}
	}
	return wait
}

func (d *Directory) lookDue(now time.Time) {
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
func (d *Directory) look(path string, now time.Time) {
	text, err := d.read(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoManifest) {
		d.lookGone(path, now)
		return
	}
	f := d.entry(path)
	f.gone = time.Time{}
	if err != nil {
		f.read = false
		d.pass(path, f, []content.Problem{{Origin: path, Err: fmt.Errorf("read manifest %s: %w", path, err)}}, now)
		return
	}
	sum := sha256.Sum256(text)
	if f.read && f.sum == sum {
		if len(f.problems) > 0 && !f.reported {
			d.pass(path, f, f.problems, now)
		}
		return
	}
	f.read, f.sum = true, sum
	w, problems := content.Build(text, path, pod.SourceFile, d.node)
	f.wanted = content.Keep(f.wanted, w, len(problems) > 0)
	d.pass(path, f, problems, now)
}

// pass passes on what a file wants at once, and its problems once they have lasted for settleTime.
func (d *Directory) pass(path string, f *file, problems []content.Problem, now time.Time) {
	f.problems, f.reported, f.due = problems, false, time.Time{}
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
		f.reported = true
	}
	d.out.Put(path, f.wanted, problems, now)
}

// lookGone removes a file that has been missing for settleTime.
func (d *Directory) lookGone(path string, now time.Time) {
	f := d.files[path]
	if f == nil {
		return
	}
	if f.gone.IsZero() {
		f.gone = now
	}
	if left := f.gone.Add(d.settle).Sub(now); left > 0 && !f.wanted.Empty() {
		f.due = now.Add(left)
		return
	}
	delete(d.files, path)
	d.out.Drop(path, now)
}

func (d *Directory) read(path string) ([]byte, error) {
	switch {
	case d.place == single && path == d.path:
		return readAt(path)
	case d.place == directory && filepath.Dir(path) == d.path:
		return readIn(d.path, filepath.Base(path))
	default:
		return nil, fs.ErrNotExist // from a directory or file that was at the path before
	}
}
