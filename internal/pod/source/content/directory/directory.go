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

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/content"
)

// settleTime is how long a file must be missing or invalid before that counts. Editors move a file away before they
// write it again, and scripts write a file in several steps.
const settleTime = 200 * time.Millisecond

// unlinkTime is settleTime for a file that was removed, and not moved away. git, and scripts that remove a file before
// they write it again, do so at once.
const unlinkTime = 80 * time.Millisecond

// Directory reads the manifests of a directory, or one file. It reacts to inotify events and also checks everything
// once a period. The periodic check is all that works without inotify, for example on some network file systems.
//
//	CLOSE_WRITE, MOVED_TO ----> read at once
//	MODIFY -------------------> wait for CLOSE_WRITE
//	CREATE, missing, invalid -> read again after settleTime
//	DELETE -------------------> read again after unlinkTime
type Directory struct {
	at     *target
	node   string
	settle time.Duration // settleTime, except in tests
	keep   bool
	copies *copies // nil: none are kept
	out    content.Sink

	files   map[string]*file
	last    object.Directory // the directory that the manifests were read from
	judged  object.Directory // the directory whose missing files count as removed
	missing time.Time        // since when the manifests are missing; zero: they are not
	recheck time.Time        // when to read everything again; zero: at the next event
	late    bool             // a complete read is reported as soon as finish allows it
}

// file is the state of one manifest file.
type file struct {
	read     bool // sum is valid
	sum      [sha256.Size]byte
	version  version          // before it was read; zero: not known
	dir      object.Directory // where it was read
	copied   bool             // the copy on disk has the content of sum
	passed   bool             // the sink has received wanted
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
	// Keep says that the pods of manifests run on while the directory is missing (see missing.go). Otherwise they end.
	Keep bool
	// Copies is the directory for copies of valid manifests. The pods of a manifest that is missing (Keep) or cannot be
	// read when the agent starts run on from them. Empty: it keeps no copies.
	Copies string
	Log    *slog.Logger
}

// New returns a Directory that writes to out. It reads nothing before Run.
func New(o Options, out content.Sink) *Directory {
	d := &Directory{
		at:   &target{path: filepath.Clean(o.Path), period: o.Period, log: o.Log},
		node: o.NodeName, settle: cmp.Or(o.Settle, settleTime), keep: o.Keep, out: out, files: map[string]*file{},
	}
	if o.Copies != "" {
		d.copies = newCopies(o.Copies, o.Log)
	}
	return d
}

// Run reads the directory until ctx ends, and waits for its goroutines. It calls seen after each complete read.
func (d *Directory) Run(ctx context.Context, seen func()) error {
	d.recall()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.copies.run(ctx) })
	group.Go(func() error { return d.follow(ctx, seen) })
	return group.Wait()
}

// follow reads the directory, and reads it again as it changes, until ctx ends.
func (d *Directory) follow(ctx context.Context, seen func()) error {
	events := d.at.start()
	defer d.at.end()
	relist := time.NewTicker(d.at.period)
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
			d.refresh(time.Now(), d.at.replaced(), seen)
		case <-again.C:
			d.lookDue(time.Now(), seen)
		}
	}
}

// refresh reads everything. If aim, it first finds out again what is at the path.
func (d *Directory) refresh(now time.Time, aim bool, seen func()) {
	d.late = false
	err := error(nil)
	if aim {
		for _, f := range d.files {
			f.writing = time.Time{} // the old watch may have received its close
		}
		err = d.at.aim()
	}
	at, err := d.at.survey(err)
	if why := loss(d.last, len(d.files) > 0, at, err); d.keep && why != "" {
		d.hold(why, now)
		seen()
		return
	}
	d.missing, d.recheck, d.judged = time.Time{}, time.Time{}, at.dir
	if err == nil {
		err = d.scan(at.dir, now)
	}
	if err != nil {
		d.out.List(d.at.above(), object.Directory{})
		d.out.Put(d.whole(), content.Wanted{},
			[]content.Problem{{Origin: d.at.path, Err: fmt.Errorf("read manifests: %w", err)}}, now)
		return
	}
	d.out.List(d.at.above(), at.dir)
	d.out.Drop(d.whole(), now)
	d.finish(seen)
}

// finish reports a complete read. While a manifest of an earlier agent is missing, and may come back, it leaves that
// to the next call: the pods of the manifest would end although nobody has removed it.
func (d *Directory) finish(seen func()) {
	d.late = false
	for _, f := range d.files {
		d.late = d.late || !f.passed && !f.wanted.Empty()
	}
	if !d.late {
		seen()
	}
}

// whole is the origin of problems of the whole directory. It differs from every file's path.
func (d *Directory) whole() string { return d.at.path + "/" }

// scan reads all present and all known files, except those that have not changed since they were read from dir.
func (d *Directory) scan(dir object.Directory, now time.Time) error {
	paths, err := d.at.list()
	if err != nil {
		return err
	}
	for path := range d.files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		f := d.files[path]
		if f != nil && (now.Sub(f.writing) < d.at.period || f.unchanged(path, dir, now)) {
			continue // the close of a file that is written is an event
		}
		d.look(path, now)
	}
	return nil
}

// unchanged reports whether a file without problems is still the one that was read.
func (f *file) unchanged(path string, dir object.Directory, now time.Time) bool {
	return f.read && f.version != (version{}) && f.dir == dir && len(f.problems) == 0 && f.gone.IsZero() &&
		f.version == versionAt(path, now)
}

// handle processes one batch of events. It first records what the events say about each file, then reads each changed
// file once, or everything. It skips events of a watch that was replaced.
func (d *Directory) handle(batch []inotify.Event, now time.Time, seen func()) {
	var touched []string
	everything := false
	renamedFrom := map[uint32]string{}
	for _, e := range batch {
		if !d.at.notify.Current(e) {
			continue
		}
		if d.at.restructures(e) || !d.missing.IsZero() {
			d.refresh(now, true, seen)
			return
		}
		everything = everything || d.at.swapped(e)
		path, ours := d.at.pathOf(e.Name)
		if ours && d.note(path, e, renamedFrom, now) && !slices.Contains(touched, path) {
			touched = append(touched, path)
		}
	}
	if everything {
		d.refresh(now, false, seen)
		return
	}
	// Arrivals come before removals, so that the objects of a renamed file are never missing.
	slices.SortStableFunc(touched, func(a, b string) int { return cmp.Compare(missingLast(a), missingLast(b)) })
	for _, path := range touched {
		if f := d.files[path]; f == nil || f.writing.IsZero() {
			d.look(path, now)
		}
	}
	if d.late {
		d.finish(seen)
	}
}

// missingLast sorts changed files before they are read: those that exist come first.
func missingLast(path string) int {
	if _, err := os.Lstat(path); err != nil {
		return 1
	}
	return 0
}

// note records an event of a file and reports whether to read the file now.
func (d *Directory) note(path string, e inotify.Event, renamedFrom map[uint32]string, now time.Time) bool {
	f := d.files[path]
	switch {
	case e.Mask&unix.IN_MODIFY != 0:
		d.entry(path).writing = now
		return false
	case e.Mask&unix.IN_CREATE != 0 && !isWhole(path):
		d.entry(path).due = now.Add(d.settle)
		return false
	case e.Mask&unix.IN_DELETE != 0 && f != nil:
		f.gone = now.Add(min(unlinkTime, d.settle) - d.settle)
	case e.Mask&unix.IN_MOVED_FROM != 0:
		renamedFrom[e.Cookie] = path
	case e.Mask&unix.IN_MOVED_TO != 0:
		if from := d.files[renamedFrom[e.Cookie]]; from != nil {
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
	wait := d.at.period
	for _, f := range d.files {
		if !f.due.IsZero() {
			wait = min(wait, max(0, f.due.Sub(now)))
		}
	}
	if !d.recheck.IsZero() {
		wait = min(wait, max(0, d.recheck.Sub(now)))
	}
	return wait
}

func (d *Directory) lookDue(now time.Time, seen func()) {
	if !d.recheck.IsZero() && !d.recheck.After(now) {
		d.refresh(now, true, seen)
		return
	}
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
	if d.late {
		d.finish(seen)
	}
}

// look reads a file and passes on what it wants now.
func (d *Directory) look(path string, now time.Time) {
	v := versionAt(path, now)
	text, dir, err := d.read(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoManifest) {
		d.lookGone(path, dir, now)
		return
	}
	f := d.entry(path)
	f.gone, f.version = time.Time{}, v
	if err != nil {
		f.read = false
		d.pass(path, f, []content.Problem{{Origin: path, Err: fmt.Errorf("read manifest %s: %w", path, err)}}, now)
		return
	}
	sum := sha256.Sum256(text)
	if f.read && f.sum == sum && f.dir == dir {
		if len(f.problems) > 0 && !f.reported {
			d.pass(path, f, f.problems, now)
		}
		return
	}
	f.read, f.copied = true, f.copied && f.sum == sum && f.dir == dir
	f.sum, f.dir, d.last = sum, dir, dir
	w, problems := content.Build(text, path, pod.SourceFile, d.node)
	f.wanted = content.Keep(f.wanted, w, content.Faulty(problems))
	d.pass(path, f, problems, now)
	if !content.Faulty(problems) && !f.copied {
		f.copied = d.copies.save(path, manifestCopy{Text: text, Dir: dir})
	}
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
	w := f.wanted
	w.Dir, w.Faulty, f.passed = f.dir, content.Faulty(f.problems), true
	d.out.Put(path, w, problems, now)
}

// lookGone removes a file that has been missing for settleTime, or unlinkTime. dir is the directory that does not have
// it, or zero if the directory is not there either.
func (d *Directory) lookGone(path string, dir object.Directory, now time.Time) {
	f := d.files[path]
	if f == nil {
		return
	}
	if d.keep && dir != d.judged && d.at.reads(path) {
		d.recheck = now.Add(d.settle) // the directory itself has gone since refresh looked at it
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
	d.out.List(filepath.Dir(path), dir)
	d.out.Drop(path, now)
	d.copies.remove(path)
}

// read returns the content of a file and the directory that it is in, which is zero if there is none.
func (d *Directory) read(path string) ([]byte, object.Directory, error) {
	switch {
	case !d.at.reads(path):
		return nil, object.Directory{}, fs.ErrNotExist
	case path == d.at.path:
		return readAt(path)
	}
	return readIn(d.at.path, filepath.Base(path))
}
