package test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/unixsocket"
)

// ownedRow is a row of the page's table: the modes of the directories, files and sockets at a path. A path that ends
// with /** stands for everything below it. A mode is four octal digits, "any", or "-" if there is no such entry.
type ownedRow struct {
	path                 string
	dirs, files, sockets string
}

// ownedLine is a line of the table: a path, and the modes of directories, files and sockets.
var ownedLine = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|" + strings.Repeat(` ([0-7]{4}|any|-) \|`, 3))

// owned compares every file below the root directory, and the files of this agent in /run, with the tables of a page.
// The owner is root, the mode is the table's, and a table has a row for the file. Files with any mode lie below a
// directory that only root can enter.
func (*harness) owned(ts *testscript.TestScript, args []string) {
	text, err := os.ReadFile(filepath.Join("..", args[0]))
	ts.Check(err)
	var rows []ownedRow
	for _, m := range ownedLine.FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, ownedRow{m[1], m[2], m[3], m[4]})
	}
	if len(rows) < 20 {
		ts.Fatalf("%s has a table of %d rows", args[0], len(rows))
	}
	w := &ownedWalk{root: rootOf(ts), sockets: unixsocket.Dir(rootOf(ts)), rows: rows}
	for _, top := range []string{w.root, filepath.Dir(w.sockets), w.sockets, "/run/berth-network.lock"} {
		w.top = top
		ts.Check(filepath.WalkDir(top, w.visit))
	}
	if len(args) > 1 {
		if len(w.wrong) != 1 || !strings.HasPrefix(w.wrong[0], args[1]) {
			ts.Fatalf("want one fault, of %s, got:\n%s", args[1], strings.Join(w.wrong, "\n"))
		}
		return
	}
	if slices.Sort(w.wrong); len(w.wrong) > 0 {
		ts.Fatalf("%s has another table:\n%s", args[0], strings.Join(w.wrong, "\n"))
	}
	ts.Logf("%d files, directories and sockets are as in %s", w.seen, args[0])
}

// ownedWalk compares a live root directory with the rows.
type ownedWalk struct {
	root    string
	sockets string // the directory of the runtime's sockets, /run/berth/HASH
	top     string // where the walk began
	rows    []ownedRow
	seen    int
	wrong   []string
}

// name returns the name of a file in the table: its path below the root directory, or its absolute path.
func (w *ownedWalk) name(path string) (string, error) {
	if w.top == w.root {
		return filepath.Rel(w.root, path)
	}
	if below, ok := strings.CutPrefix(path, w.sockets); ok {
		return filepath.Dir(w.sockets) + "/HASH" + below, nil
	}
	return path, nil
}

func (w *ownedWalk) visit(name string, d fs.DirEntry, err error) error {
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(name, &st)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	rel, err := w.name(name)
	if err != nil || ofTheTest(rel) {
		return err
	}
	row := rowFor(w.rows, rel)
	w.seen++
	switch fault := row.fault(st); {
	case fault != "":
		w.wrong = append(w.wrong, rel+" "+fault)
	case d.IsDir() && name == filepath.Dir(w.sockets):
		return fs.SkipDir // it has the directories of other agents too
	case row.dirs == "any":
		if !w.closed(rel) {
			w.wrong = append(w.wrong, rel+" has any mode, and other users can enter all directories above it")
		}
		if d.IsDir() {
			return fs.SkipDir // its content lies below the same closed directory
		}
	}
	return nil
}

// closed reports whether another user cannot enter one of the directories above a file.
func (w *ownedWalk) closed(rel string) bool {
	for dir := path.Dir(rel); dir != "." && dir != "/"; dir = path.Dir(dir) {
		info, err := os.Lstat(filepath.Join(w.root, dir))
		if err == nil && info.Mode().Perm()&0o007 == 0 {
			return true
		}
	}
	return false
}

// ofTheTest reports whether the harness made a file in the root directory.
func ofTheTest(rel string) bool {
	first, _, _ := strings.Cut(rel, "/")
	return slices.Contains([]string{".", "config.yaml", "loaded", "manifests"}, first)
}

// rowFor returns the row with the longest path that matches.
func rowFor(rows []ownedRow, rel string) (best ownedRow) {
	for _, r := range rows {
		if r.matches(rel) && len(r.path) >= len(best.path) {
			best = r
		}
	}
	return best
}

func (r ownedRow) matches(rel string) bool {
	prefix, all := strings.CutSuffix(r.path, "/**")
	pattern, name := strings.Split(prefix, "/"), strings.Split(rel, "/")
	if all && len(name) <= len(pattern) || !all && len(name) != len(pattern) {
		return false
	}
	ok, err := path.Match(prefix, strings.Join(name[:len(pattern)], "/"))
	return ok && err == nil
}

// fault returns how an entry differs from the row, "" if it does not.
func (r ownedRow) fault(st unix.Stat_t) string {
	want := r.files
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		want = r.dirs
	case unix.S_IFSOCK:
		want = r.sockets
	case unix.S_IFLNK:
		return "" // its target counts
	}
	if want == "any" {
		return ""
	}
	if got := fmt.Sprintf("%04o", st.Mode&0o7777); got != want || st.Uid != 0 || st.Gid != 0 {
		return fmt.Sprintf("has mode %s and owner %d:%d, want mode %q of row %q", got, st.Uid, st.Gid, want, r.path)
	}
	return ""
}
