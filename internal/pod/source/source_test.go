package source

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// patience limits waits in tests. Without a failure none takes that long.
const patience = 20 * time.Second

// rig runs Sources and records what they report.
type rig struct {
	*Sources
	t       *testing.T
	reports *reports
	watch   *store.Watcher[types.UID, *pod.Pod]
	err     *store.Watcher[ProblemKey, Problem]
	// names and problems hold the content of the tables as read so far.
	names    map[string]types.UID
	problems map[string]bool
	// deleted are the names of removed pods.
	deleted []string
	stop    func()
}

// reports collects the reported problems.
type reports struct {
	mu   sync.Mutex
	text []string
}

func (*reports) SourceResolved(Problem) {}

func (r *reports) SourceProblem(p Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, p.Err.Error())
}

func (r *reports) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.text)
}

// start runs sources with the node name "node" until the test ends or stop is called.
func start(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{t: t, reports: &reports{}, names: map[string]types.UID{}, problems: map[string]bool{}}
	o.NodeName, o.Report, o.Log = "node", r.reports, slog.New(slog.DiscardHandler)
	if o.Period == 0 {
		o.Period = time.Hour // only inotify triggers reads
	}
	if o.Applied == "" {
		o.Applied = filepath.Join(t.TempDir(), "applied")
	}
	if o.Node == nil {
		o.Node = admitted(true)
	}
	r.Sources = New(o)
	r.watch, r.err = r.Desired.Watch(), r.Problems.Watch()
	r.stop = sync.OnceFunc(looptest.Start(t, r.Run, context.Canceled))
	t.Cleanup(r.stop)
	return r
}

// admitted says of every pod whether the node has admitted it.
type admitted bool

func (a admitted) Working(types.UID) bool { return bool(a) }

// await reads the tables until they hold these pods, by name, and these problems, by text.
func (r *rig) await(names []string, problems ...string) {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		r.catchUp()
		gotNames, gotProblems := slices.Sorted(maps.Keys(r.names)), slices.Sorted(maps.Keys(r.problems))
		slices.Sort(problems)
		if slices.Equal(names, gotNames) && slices.Equal(problems, gotProblems) {
			return
		}
		select {
		case <-r.watch.C():
		case <-r.err.C():
		case <-timeout:
			r.t.Fatalf("pods (-want +got):\n%s\nproblems (-want +got):\n%s", cmp.Diff(names, gotNames),
				cmp.Diff(problems, gotProblems))
		}
	}
}

// catchUp reads the changes of the tables. It reads the problems first, because pods are settled before problems.
func (r *rig) catchUp() {
	for _, c := range r.err.Changes() {
		r.problems[c.Key.Text] = true
		if c.Deleted {
			delete(r.problems, c.Key.Text)
		}
	}
	for _, c := range r.watch.Changes() {
		r.note(c)
	}
}

// awaitOther waits until a pod of that name has another UID.
func (r *rig) awaitOther(name string, was types.UID) *pod.Pod {
	r.t.Helper()
	timeout := time.After(patience)
	for r.names[name] == "" || r.names[name] == was {
		select {
		case <-r.watch.C():
			r.catchUp()
		case <-timeout:
			r.t.Fatalf("pod %s: UID %q, want one that is not %q", name, r.names[name], was)
		}
	}
	return r.get(name)
}

func (r *rig) note(c store.Change[types.UID, *pod.Pod]) {
	name := pod.FullName(c.Value.Pod)
	switch {
	case !c.Deleted:
		r.names[name] = c.Key
	case r.names[name] == c.Key:
		delete(r.names, name)
		fallthrough
	default:
		r.deleted = append(r.deleted, name)
	}
}

// get returns the desired pod of that name.
func (r *rig) get(name string) *pod.Pod {
	r.t.Helper()
	p, ok := r.Desired.Get(r.names[name])
	if !ok {
		r.t.Fatalf("pod %s is not desired", name)
	}
	return p
}

func (r *rig) synced() bool {
	select {
	case <-r.Synced():
		return true
	default:
		return false
	}
}

func (r *rig) awaitSynced() {
	r.t.Helper()
	select {
	case <-r.Synced():
	case <-time.After(patience):
		r.t.Fatal("never synced")
	}
}

// manifestOf returns a minimal manifest of a pod.
func manifestOf(name, image string) string {
	return fmt.Sprintf(
		"apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: app, image: %s}]\n", name, image)
}

func docs(all ...string) string { return strings.Join(all, "---\n") }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Without a path or URL, Sources are synced at once and Run ends with its context.
func TestNoSources(t *testing.T) {
	r := start(t, Options{})
	r.awaitSynced()
	r.stop()
}
