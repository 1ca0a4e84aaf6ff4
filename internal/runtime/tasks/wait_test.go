package tasks

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
)

// An answer of Wait ends a container for the CRI plugin. Wait does not answer while it is unknown whether the process
// runs.
func TestWaitAnswersOnlyForTheShim(t *testing.T) {
	dir := t.TempDir()
	for name, closed := range map[string]bool{"the runtime has ended": true, "no shim can be started": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &link{
					config: Config{Program: filepath.Join(dir, "shim"), Socket: filepath.Join(dir, "socket"),
						Log: slog.Default()},
					pidfds: func() map[string]*os.File { return nil },
				}
				if closed {
					l.close()
				}
				ctx, cancel := context.WithCancel(t.Context())
				var err error
				returned := false
				go func() {
					_, err = (&process{shim: l, container: "c"}).Wait(ctx)
					returned = true
				}()
				synctest.Wait()
				if returned {
					t.Fatalf("Wait returned with %v while its context lived", err)
				}
				cancel()
				synctest.Wait()
				if !returned || !errors.Is(err, context.Canceled) {
					t.Errorf("after its context: returned %t with %v, want the context's error", returned, err)
				}
			})
		})
	}
}
