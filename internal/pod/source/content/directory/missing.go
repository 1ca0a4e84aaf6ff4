package directory

import (
	"fmt"
	"time"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/content"
)

// found describes what is at the path.
type found struct {
	// dir is the directory of the manifests: the one at the path, or the one above a single manifest. It is zero if
	// the directory is not there.
	dir object.Directory
	// files is the number of manifests in it.
	files int
}

// loss decides whether the manifests that are known have disappeared together with their directory, and returns why. It
// returns "" if the removal of files counts: the directory is there and readable.
//
// An empty directory on another device than before, or at a mount point without its mount, is what an unmounted file
// system leaves. An empty directory on the same device was made anew: it counts. So does any directory with a manifest,
// because whole directories are replaced to deploy their content.
func loss(last object.Directory, known bool, at found, err error) (why string) {
	switch {
	case !known:
		return ""
	case err != nil:
		return fmt.Sprintf("cannot be read (%v)", err)
	case at.dir.IsZero():
		return "does not exist"
	case at.files > 0 || last.IsZero() || at.dir == last:
		return ""
	case at.dir.Device != last.Device || last.Mount && !at.dir.Mount:
		return "is empty and on another file system than its manifests were"
	}
	return ""
}

// hold keeps the pods and objects of the manifests while these are missing. It reports this once it has lasted for
// settleTime.
func (d *Directory) hold(why string, now time.Time) {
	d.out.List(d.at.above(), object.Directory{})
	for path, f := range d.files {
		f.gone, f.due, f.writing = time.Time{}, time.Time{}, time.Time{}
		if !f.passed {
			d.pass(path, f, nil, now)
		}
	}
	if d.missing.IsZero() {
		d.missing = now
	}
	if d.recheck = d.missing.Add(d.settle); d.recheck.After(now) {
		return
	}
	d.recheck = time.Time{}
	d.out.Put(d.whole(), content.Wanted{},
		[]content.Problem{{Origin: d.at.path, Err: &content.MissingError{Path: d.at.path, Why: why}}}, now)
}
