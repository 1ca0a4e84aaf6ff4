package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/config"
)

// fakeAgent is an agent whose state the test controls.
type fakeAgent struct {
	ready chan struct{}
	fail  chan error
	last  error // the result of Run after its context has ended
}

func newFakeAgent() *fakeAgent {
	return &fakeAgent{ready: make(chan struct{}), fail: make(chan error, 1)}
}

func (a *fakeAgent) Run(ctx context.Context) error {
	select {
	case err := <-a.fail:
		return err
	case <-ctx.Done():
		return a.last
	}
}

func TestEmbed(t *testing.T) {
	broken := errors.New("broken")
	t.Run("ends with the command", func(t *testing.T) {
		a := newFakeAgent()
		close(a.ready)
		a.last = broken
		leave, err := embed(t.Context(), func(error) {}, embedded{a, a.ready}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := leave(); !errors.Is(err, broken) {
			t.Errorf("leave: %v", err)
		}
	})
	t.Run("cannot start", func(t *testing.T) {
		a := newFakeAgent()
		a.fail <- broken
		ctx, cancel := context.WithCancelCause(t.Context())
		if _, err := embed(ctx, cancel, embedded{a, a.ready}, nil); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("fails later", func(t *testing.T) {
		a := newFakeAgent()
		close(a.ready)
		ctx, cancel := context.WithCancelCause(t.Context())
		leave, err := embed(ctx, cancel, embedded{a, a.ready}, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.fail <- broken
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, broken) {
			t.Errorf("cause: %v", err)
		}
		if err := leave(); err != nil {
			t.Errorf("leave says it again: %v", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGINT
		_, err := embed(t.Context(), func(error) {}, embedded{agent: newFakeAgent()}, signals)
		if exit, ok := errors.AsType[*command.ExitError](err); !ok || exit.Code != exitAbandoned {
			t.Errorf("got %v", err)
		}
	})
}

// The example configuration loads without an error and without a field that has no effect. That also holds
// with every commented line enabled.
func TestExampleConfiguration(t *testing.T) {
	text, err := os.ReadFile("setup/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	full := regexp.MustCompile(`(?m)^# ([a-zA-Z]+: )`).ReplaceAllString(string(text), "$1")
	for name, text := range map[string]string{"as it is": string(text), "in full": full} {
		_, warnings, err := config.Load(config.Flags{ConfigFile: file(t, "config.yaml", text)})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, %v", name, err, warnings)
		}
	}
}

// What the agent prints of itself needs neither root nor a running agent.
func TestPrintsStepsAndAdmission(t *testing.T) {
	for flag, want := range map[string][]string{
		"--print-steps":     {"STEP", "poddir", "sandbox", "container", "probe"},
		"--print-admission": {"STAGE", "shutdown", "rules", "preempt", "ledger", "report"},
	} {
		var out, stderr bytes.Buffer
		status := Main([]string{"agent", flag}, strings.NewReader(""), &out, &stderr)
		got := result{out.String(), stderr.String(), status}
		at := 0
		for _, word := range want {
			i := strings.Index(got.Out[at:], word)
			if i < 0 {
				t.Errorf("%s: %q does not follow: %+v", flag, word, got)
				break
			}
			at += i
		}
	}
}
