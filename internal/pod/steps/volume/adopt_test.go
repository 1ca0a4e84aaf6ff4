package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// adopted is an Adopter: it finds volumes that another agent has mounted.
type adopted struct {
	Stager
	uses     []Use
	unstaged []string
}

func (*adopted) Dir() string            { return "example~kind" }
func (a *adopted) Uses() ([]Use, error) { return a.uses, errors.New("one cannot be read") }

func (a *adopted) Unstage(_ context.Context, stage string) error {
	id, err := os.ReadFile(filepath.Join(filepath.Dir(stage), stageID))
	a.unstaged = append(a.unstaged, string(id))
	return err
}

// A part that another agent has staged is unstaged after its last pod, whether this agent has set that pod up or not.
func TestAdoptedPartIsUnstagedAfterItsLastPod(t *testing.T) {
	k := &adopted{uses: []Use{{"shared", "uid-a", "pv"}, {"shared", "uid-b", "pv"}, {"alone", "uid-b", "other"}}}
	v := New(Config{Root: t.TempDir(), Kinds: []Kind{k}})
	for range 2 { // each start of the agent adopts
		if err := v.Adopt(); err == nil {
			t.Error("no error for a volume that cannot be read")
		}
	}
	orphans, err := v.Orphans(func(uid types.UID) bool { return uid == "uid-a" })
	if err != nil || len(orphans) != 1 || orphans[0] != "uid-b" {
		t.Errorf("orphans: %v, %v", orphans, err)
	}
	for i, uid := range []types.UID{"uid-b", "uid-a"} {
		if err := v.Remove(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		if want := []string{"alone", "shared"}[i]; len(k.unstaged) != i+1 || k.unstaged[i] != want {
			t.Errorf("after %s: unstaged %q", uid, k.unstaged)
		}
	}
}
