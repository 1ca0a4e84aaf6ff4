package https

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/base/safepath"
)

// journalTime limits one query of the journal.
const journalTime = 30 * time.Second

// systemLogRoutes serves the machine's logs.
type systemLogRoutes struct {
	dir   string
	query bool // whether queries for the logs of services are on
}

// serve serves the files of the log directory, or answers a query for the logs of services (KEP-2258).
func (s systemLogRoutes) serve(w http.ResponseWriter, r *http.Request) error {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = root.Close() }() // it was only read
	dir, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer func() { _ = dir.Close() }() // it was only read
	files := logFiles{root, dir}
	name := r.PathValue("path")
	if s.query {
		q, isQuery, err := parseLogQuery(r.URL.Query())
		switch {
		case err != nil:
			return answer.BadRequest(err.Error(), "")
		case isQuery && name != "":
			return notAcceptable("path not allowed in query mode")
		case isQuery:
			if err := q.check(); err != nil {
				return notAcceptable(err.Error())
			}
			if len(q.files) == 0 {
				return s.services(w, r, files, q)
			}
			name = strings.TrimPrefix(strings.ReplaceAll(q.files[0], `\`, "/"), "/")
		}
	}
	r = r.Clone(r.Context())
	r.URL.Path = "/" + name
	http.FileServerFS(files).ServeHTTP(w, r)
	return nil
}

// logFiles is a file system of one directory. A symbolic link must not lead out of it. A link with an
// absolute target inside the directory works, as in /var/log/containers. It has files and directories only: a pod that
// can write to a log directory may have put a FIFO there, and to open that would wait for a writer.
type logFiles struct {
	root *os.Root
	dir  *os.File // the same directory
}

// maxLinks is the limit of symbolic links in one path on Linux (path_resolution(7)).
const maxLinks = 40

// Open implements fs.FS.
func (l logFiles) Open(name string) (fs.File, error) {
	for range maxLinks {
		f, err := l.open(name)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		to, linkErr := l.root.Readlink(name)
		if linkErr != nil {
			return nil, err
		}
		inside, linkErr := filepath.Rel(l.root.Name(), to)
		if linkErr != nil || !filepath.IsAbs(to) || !filepath.IsLocal(inside) {
			return nil, fs.ErrPermission
		}
		name = inside
	}
	return nil, fs.ErrPermission
}

func (l logFiles) open(name string) (*os.File, error) {
	at, err := safepath.Open(l.dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = at.Close() }() // it was only opened for reference
	f, err := safepath.Read(at)
	if errors.Is(err, safepath.ErrNotFile) {
		err = errors.Join(err, fs.ErrPermission)
	}
	return f, err
}

// services writes the journal of services, and the log files of services that the journal does not know.
func (s systemLogRoutes) services(w http.ResponseWriter, r *http.Request, files logFiles, q logQuery) error {
	ctx, cancel := context.WithTimeout(r.Context(), journalTime)
	defer cancel()
	units, noJournal := exec.CommandContext(ctx, "journalctl", "--field", "_SYSTEMD_UNIT").Output()
	inJournal, inFiles := q.split(string(units))
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	if len(inJournal) > 0 {
		show := exec.CommandContext(ctx, "journalctl", q.journalArgs(inJournal)...)
		show.Stdout, show.Stderr = w, w
		if err := show.Run(); err != nil &&
			!errors.As(err, new(*exec.ExitError)) { // journalctl has written its own error message
			fmt.Fprintf(w, "\nerror: journal output not available: %v\n", err)
		}
	}
	if len(inFiles) > 0 && q.hasOptions() {
		fmt.Fprintf(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n",
			inFiles)
		inFiles = nil
	}
	for _, service := range inFiles {
		err := copyLog(w, files, service)
		switch {
		case errors.Is(err, fs.ErrNotExist) && noJournal != nil:
			fmt.Fprintf(w, "\nlog not found for %s: it has no file in %s, and the journal cannot be read: %v\n",
				service, s.dir, noJournal)
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(w, "\nlog not found for %s\n", service)
		case err != nil:
			fmt.Fprintf(w, "\nerror getting log for %s: %v\n", service, err)
		}
	}
	return nil
}

// copyLog writes the first log file that exists among a service's usual names.
func copyLog(w io.Writer, files logFiles, service string) error {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		f, err := files.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was only read
		st, err := f.Stat()
		if err != nil {
			return err
		}
		if st.IsDir() {
			continue
		}
		_, err = io.Copy(w, f)
		return err
	}
	return fs.ErrNotExist
}
