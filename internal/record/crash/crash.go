package crash

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/base/guard"
)

// Names in the directory. A report has the time of the end in its name.
const (
	current = "current"
	prefix  = "panic-"
	suffix  = ".txt"
	stamp   = "20060102T150405.000Z"
)

// Bounds of the directory.
const (
	maxReports = 20
	// maxText is how much of a report is read.
	maxText = 256 << 10
)

// Report is the report of an agent that ended with a panic.
type Report struct {
	// Time is when the agent ended.
	Time time.Time
	// File has the whole text, with the stack.
	File string
	// Cause is the first line of the text.
	Cause string
	// Subject names the pod that the agent worked on (guard.About). It is empty for a panic outside such work.
	Subject string
}

// Open makes the Go runtime write the text of a panic that ends this process into the directory. It returns the reports
// of earlier processes, the oldest first. fresh is the report of the process before this one; nil if that ended in
// another way. An error does not keep Open from what it can do: the reports beside it are complete but for those that
// the error names.
func Open(dir string) (reports []Report, fresh *Report, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open crash reports: %w", err)
	}
	name, keepErr := keep(dir)
	if keepErr != nil {
		keepErr = fmt.Errorf("keep the crash report of the previous agent: %w", keepErr)
	}
	reports, loadErr := load(dir)
	if i := slices.IndexFunc(reports, func(r Report) bool { return r.File == name }); i >= 0 {
		fresh = &reports[i]
	}
	return reports, fresh, errors.Join(keepErr, loadErr, capture(dir))
}

// capture makes the Go runtime write the text of a panic into the file current.
func capture(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, current), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("open crash report: %w", err)
	}
	defer f.Close() // the Go runtime has its own descriptor
	if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
		return fmt.Errorf("write crash reports: %w", err)
	}
	return nil
}

// keep gives the text of the process before this one a name of its own, and returns that. It returns "" if that process
// wrote none.
func keep(dir string) (string, error) {
	was := filepath.Join(dir, current)
	info, err := os.Stat(was)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, prefix+info.ModTime().UTC().Format(stamp)+suffix)
	return name, os.Rename(was, name)
}

// load reads the reports, and removes the oldest beyond maxReports. A report that it cannot read or remove is in the
// error. A report without text is one that a power cut emptied: the end is known, and its cause is not.
func load(dir string) (reports []Report, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list crash reports: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name()) // sorted by time
		}
	}
	var errs []error
	for len(names) > maxReports {
		if err := os.Remove(filepath.Join(dir, names[0])); err != nil {
			errs = append(errs, fmt.Errorf("remove old crash report: %w", err))
		}
		names = names[1:]
	}
	for _, name := range names {
		at, err := time.Parse(stamp, strings.TrimSuffix(strings.TrimPrefix(name, prefix), suffix))
		if err != nil {
			continue // a file of another program
		}
		file := filepath.Join(dir, name)
		text, err := read(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("read crash report: %w", err))
			continue
		}
		reports = append(reports, parse(at, file, text))
	}
	return reports, errors.Join(errs...)
}

func read(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText))
	return string(text), err
}

// parse makes a report of the text that the Go runtime wrote.
func parse(at time.Time, file, text string) Report {
	cause, _, _ := strings.Cut(text, "\n")
	cause, _, _ = strings.Cut(cause, " [recovered")
	if cause == "" {
		cause = "unknown: the report is empty"
	}
	return Report{Time: at, File: file, Cause: cause, Subject: guard.Subject(text)}
}
