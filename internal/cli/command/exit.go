package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/lock"
)

// ExitError ends the program with an exit status. If Err is set, it is printed first.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

func (e *ExitError) Unwrap() error { return e.Err }

// AnyNext is the next step after an error that has none of its own.
const AnyNext = `check this machine with "berth doctor"; the agent's log may say more`

// nextStep returns the next step of an error, or one that follows from its cause.
func nextStep(err error) string {
	next := client.NextStep(err)
	switch {
	case next != "":
		return next
	case errors.Is(err, lock.ErrLocked):
		return lock.Advice
	case errors.Is(err, fs.ErrPermission):
		return "run this command as root, or choose a path that it may use"
	case errors.Is(err, fs.ErrNotExist):
		return "choose a path that exists"
	case errors.Is(err, syscall.ENOSPC):
		return "make space on the disk of that path, and try again"
	}
	return AnyNext
}

// PrintError prints the error of a command: its verb and object, the cause, and the next step. It prints joined errors
// one after the other, each text once.
func PrintError(w io.Writer, cmd *cobra.Command, err error) {
	seen := map[string]bool{}
	for _, one := range separate(err) {
		if text := one.Error(); !seen[text] {
			seen[text] = true
			printOne(w, cmd, text, one)
		}
	}
}

func printOne(w io.Writer, cmd *cobra.Command, text string, err error) {
	words, about := Words(cmd), objects(cmd)
	if object, cause, ok := strings.Cut(text, ": "); ok && slices.Equal(about, []string{object}) {
		text = cause // the error begins with the object
	} else if cause, ok := strings.CutPrefix(text, "-: "); ok {
		text = "standard input: " + cause
	}
	if words != "" {
		text = words + ": " + text
	}
	fmt.Fprintf(w, "error: %s\n", plain(text))
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Type != api.CauseNextStep && !strings.Contains(text, c.Message) {
				fmt.Fprintf(w, "  %s: %s\n", c.Field, c.Message)
			}
		}
	}
	fmt.Fprintf(w, "next: %s\n", nextStep(err))
}

// separate returns the errors that errors.Join has joined. Their texts are the lines of the joined text. The text of an
// error with several causes differs from that.
func separate(err error) (all []error) {
	if exit, ok := err.(*ExitError); ok && exit.Err != nil { //nolint:errorlint // an error around it has its own text
		return separate(exit.Err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var texts []string
	for _, one := range joined.Unwrap() {
		texts = append(texts, one.Error())
		all = append(all, separate(one)...)
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return all
}

// plain replaces the words of Go's library for a deadline, which say neither that an answer is missing nor whose.
func plain(text string) string {
	return strings.ReplaceAll(text, context.DeadlineExceeded.Error(), "no answer in time")
}

// FlagError returns the error of a flag without the names of Go functions, which no user knows.
func FlagError(err error) error {
	text := parsers.ReplaceAllString(err.Error(), "flag: ")
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// parsers matches what parsers of Go's library write before a cause. They repeat the value.
var parsers = regexp.MustCompile(`flag: (time: |(strconv\.\w+: parsing|slog: level string) ".*": |ParseAddr\(".*"\): )`)

// mostWords limits how many arguments Words returns.
const mostWords = 3

// objectFlags are the flags that name the object of a command without arguments.
var objectFlags = []string{"filename", "for", "selector"}

// objects returns what a command line is about: its arguments up to "--", or else the values of objectFlags.
func objects(cmd *cobra.Command) []string {
	args := cmd.Flags().Args()
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	if len(args) > 0 {
		return args
	}
	for _, name := range objectFlags {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			args = append(args, list.GetSlice()...)
		} else {
			args = append(args, flag.Value.String())
		}
	}
	return args
}

// Words returns the verb and the object of a command line: the command without "berth", and its objects. It returns ""
// if the command line names no command.
func Words(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if path == "" {
		return ""
	}
	args, words := objects(cmd), []string{path}
	for _, arg := range args[:min(len(args), mostWords)] {
		if arg == "" || strings.HasSuffix(arg, ":") || strings.ContainsFunc(arg, special) {
			arg = strconv.Quote(arg)
		}
		words = append(words, arg)
	}
	if more := len(args) - mostWords; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, " ")
}

// special reports whether an argument with this character needs quotes.
func special(c rune) bool { return c == '"' || unicode.IsSpace(c) || !unicode.IsPrint(c) }

// Exited turns the exit code of a container's process into an ExitError, which ends this program with that
// code.
func Exited(err error) error {
	if exit, ok := errors.AsType[*client.ExitError](err); ok {
		return &ExitError{Code: exit.Code}
	}
	return err
}

// Mark panics on an error, which only a wrong flag name in the caller can cause.
func Mark(err error) {
	if err != nil {
		panic(err)
	}
}

// Usage adds the usage line to the error of a wrong number of arguments.
func Usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return client.Next(err, "usage: "+cmd.UseLine())
		}
		return nil
	}
}
