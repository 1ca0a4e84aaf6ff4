package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
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

// PrintError prints an error, its causes and the next step.
func PrintError(w io.Writer, err error) {
	fmt.Fprintf(w, "error: %v\n", err)
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Type != api.CauseNextStep && !strings.Contains(err.Error(), c.Message) {
				fmt.Fprintf(w, "  %s: %s\n", c.Field, c.Message)
			}
		}
	}
	if next := client.NextStep(err); next != "" {
		fmt.Fprintf(w, "next: %s\n", next)
	}
}

// All prints all errors but the last. It returns the last one, which Main prints.
func All(stderr io.Writer, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	last := len(errs) - 1
	for _, err := range errs[:last] {
		PrintError(stderr, err)
	}
	return errs[last]
}

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
