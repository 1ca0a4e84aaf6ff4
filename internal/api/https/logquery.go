package https

import (
	"errors"
	"fmt"
	"net/url"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
)

// The limits of a query (KEP-2258).
const (
	maxTailLines     = 100_000
	maxServices      = 4
	maxServiceLength = 256
)

// logQuery is a request for the logs of services, or for one log file.
type logQuery struct {
	services, files []string
	since, until    time.Time // zero: unbounded
	tail, boot      *int
	pattern         string
}

func (q logQuery) hasOptions() bool {
	return !q.since.IsZero() || !q.until.IsZero() || q.tail != nil || q.boot != nil || q.pattern != ""
}

// parseLogQuery reads a query from URL parameters. isQuery is false if none of them belongs to a query.
func parseLogQuery(values url.Values) (q logQuery, isQuery bool, err error) {
	for _, name := range values["query"] {
		switch {
		case strings.ContainsAny(name, `/\`):
			q.files = append(q.files, name)
		case strings.TrimSpace(name) != "":
			q.services = append(q.services, name)
		}
	}
	var errs []error
	if values.Has("query") && len(q.files)+len(q.services) == 0 {
		errs = append(errs, errors.New("query may not be empty"))
	}
	at := func(name string) (t time.Time) {
		text := values.Get(name)
		if text == "" {
			return t
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s=%q is not a time like 2006-01-02T15:04:05Z", name, text))
		}
		return t
	}
	number := func(name string) *int {
		text := values.Get(name)
		if text == "" {
			return nil
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s=%q is not a number", name, text))
			return nil
		}
		return &n
	}
	q.since, q.until = at("sinceTime"), at("untilTime")
	q.tail, q.boot, q.pattern = number("tailLines"), number("boot"), values.Get("pattern")
	return q, len(q.files)+len(q.services) > 0 || q.hasOptions(), errors.Join(errs...)
}

// check validates a query that parseLogQuery has read.
func (q logQuery) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case len(q.files)+len(q.services) == 0:
		bad("query: name a service or a file")
	case len(q.files) > 0 && len(q.services) > 0:
		bad("query: cannot specify a file and a service")
	case len(q.files) > 1:
		bad("query: cannot specify more than one file")
	case len(q.files) == 1 && q.hasOptions():
		bad("query: cannot specify a file with options")
	}
	if len(q.services) > maxServices {
		bad("query: at most %d services", maxServices)
	}
	for _, s := range q.services {
		if err := checkService(s); err != nil {
			bad("query %q: %w", s, err)
		}
	}
	if !q.since.IsZero() && !q.until.IsZero() && q.since.After(q.until) {
		bad("untilTime must be after sinceTime")
	}
	if q.boot != nil && *q.boot > 0 {
		bad("boot must be less than 1")
	}
	if q.tail != nil && (*q.tail < 0 || *q.tail > maxTailLines) {
		bad("tailLines must be between 0 and %d", maxTailLines)
	}
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		bad("pattern: %w", err)
	}
	return errors.Join(errs...)
}

// checkService refuses a service name that journalctl could mistake for an option or a pattern.
func checkService(name string) error {
	if len(name) > maxServiceLength {
		return fmt.Errorf("length must be at most %d", maxServiceLength)
	}
	for _, c := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:@", c) {
			return errors.New("input contains unsupported characters")
		}
	}
	return nil
}

// split separates the services that have a unit in the journal from the others. units lists the journal's
// units, one a line.
func (q logQuery) split(units string) (inJournal, inFiles []string) {
	for _, s := range q.services {
		if strings.Contains("\n"+units+"\n", "\n"+strings.TrimSuffix(s, ".service")+".service\n") {
			inJournal = append(inJournal, s)
		} else {
			inFiles = append(inFiles, s)
		}
	}
	return inJournal, inFiles
}

// journalArgs returns the arguments of journalctl(1). Times are in UTC.
func (q logQuery) journalArgs(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.since.IsZero() {
		args = append(args, "--since="+q.since.UTC().Format(time.DateTime))
	}
	if !q.until.IsZero() {
		args = append(args, "--until="+q.until.UTC().Format(time.DateTime))
	}
	if q.tail != nil {
		args = append(args, "--lines="+strconv.Itoa(*q.tail))
	}
	for _, s := range services {
		args = append(args, "--unit="+s)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	if q.boot != nil {
		args = append(args, "--boot="+strconv.Itoa(*q.boot))
	}
	return args
}
