package ui

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/ui"
)

// get opens a link in a new browser and returns the status of the answer.
func get(t *testing.T, link string) int {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Jar: jar}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestCommandPrintsALinkForEachEnter(t *testing.T) {
	agent := servertest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := Command(&command.App{Socket: agent.Socket})
	cmd.SetContext(ctx)
	in, keys := io.Pipe()
	shown, out := io.Pipe()
	cmd.SetArgs(nil)
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	done := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = out.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(shown)
	link := func() string {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "http://127.0.0.1:") {
				return lines.Text()
			}
		}
		return ""
	}
	first := link()
	if first == "" {
		err := <-done
		if errors.Is(err, ui.ErrNoPage) {
			t.Skipf("%v; run make assets", err)
		}
		t.Fatalf("no link: %v", err)
	}
	if _, err := io.WriteString(keys, "\n"); err != nil {
		t.Fatal(err)
	}
	second := link()
	for _, tt := range []struct {
		link string
		want int
	}{{first, 200}, {first, 401}, {second, 200}} {
		if got := get(t, tt.link); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.link, got, tt.want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
