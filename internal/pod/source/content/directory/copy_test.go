package directory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/internal/base/logtest"
)

// A copy is there as soon as it is saved, and its sync is repeated until the disk can do it. A directory of /proc
// cannot be synced.
func TestCopiesAreSyncedLaterUntilTheDiskCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Lines
		root := t.TempDir()
		disk, refusing := filepath.Join(root, "disk"), filepath.Join(root, "refusing")
		must(t, os.Symlink("/proc/self/fdinfo", refusing))
		c := newCopies(disk, log.Logger())
		if !c.save("/manifests/web.yaml", manifestCopy{Text: []byte("web")}) {
			t.Fatal(log.String())
		}
		if got := c.load()["/manifests/web.yaml"].Text; string(got) != "web" {
			t.Errorf("the copy at once: %q", got)
		}
		must(t, os.Rename(disk, disk+"~"))
		must(t, os.Rename(refusing, disk))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.run(ctx) }()
		logged := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after) // on the clock of synctest, which does not wait
			synctest.Wait()
			if !strings.Contains(log.String(), want) || want == "" && log.String() != "" {
				t.Errorf("logged: %q, want %q", log.String(), want)
			}
		}
		logged(syncDelay-1, "")
		logged(1, "cannot sync copies of manifests")
		must(t, os.Rename(disk, refusing))
		must(t, os.Rename(disk+"~", disk))
		logged(time.Minute, "copies of manifests are synced again")
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
