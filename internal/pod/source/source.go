package source

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/content/directory"
	"github.com/berth-run/berth/internal/pod/source/content/url"
)

// Options configures the sources.
type Options struct {
	// NodeName is set in every pod, and appended to the names of static pods.
	NodeName string
	// Path is the directory of manifests, or a single manifest. Empty means none.
	Path string
	// Keep says that the pods of manifests run on while Path is missing. Otherwise they end.
	Keep bool
	// Copies is the directory for the copies of manifests that Keep needs. Empty: there are none.
	Copies string
	// Period is the time between two full checks of Path; more than 0 (fileCheckFrequency).
	Period time.Duration
	// URL is the address of a manifest. Empty means none.
	URL string
	// URLHeader is sent with each request.
	URLHeader http.Header
	// URLPeriod is the time between two requests; more than 0 (httpCheckFrequency).
	URLPeriod time.Duration
	// Applied is the directory that stores pods of "berth apply". Other objects are in a directory below it.
	Applied string
	// Identities is the file of the identities of static pods. If empty, they are held in memory only.
	Identities string
	// Cluster says that an API server also supplies pods, through Sources.Cluster. Synced then waits for it.
	Cluster bool
	// Frozen says that no pod is started: Identities is read and not written. Otherwise a new manifest would get its
	// identity before the search for the pod that runs for it (Running).
	Frozen bool
	// Ignored are the fields of pods that are dropped, as if no pod had them.
	Ignored pod.Ignored
	// Running are the pods that run already (package takeover). nil: no manifest gets the UID of such a pod.
	Running Running
	Log     *slog.Logger
	// Report receives each problem once.
	Report reporter
	// Node are the pods that this node has admitted; required.
	Node Node

	settle time.Duration // see directory.Options.Settle
}

// Running are the pods that run already, perhaps under another UID.
type Running interface {
	// Await waits until Find can answer. No manifest is read before.
	Await(context.Context) error
	// Find returns the UID of the pod that runs for a manifest. It is called when the manifest is read for the first
	// time.
	Find(*pod.Pod) (types.UID, bool)
}

// Node are the pods that this node has admitted.
type Node interface {
	// Working reports whether the node has admitted a pod. Until then the pod follows changes of its RuntimeClass.
	Working(types.UID) bool
}

// Sources holds all sources of pods. Create it with New, then call Run.
type Sources struct {
	// Desired holds the pods that should run, by UID.
	Desired *store.Table[types.UID, *pod.Pod]
	// Objects holds the other objects, which pods name.
	Objects *object.Table
	// Problems holds the manifests, or parts of them, that could not be used.
	Problems *store.Table[ProblemKey, Problem]
	// Local receives pods from the agent's API.
	Local *Local
	// Cluster receives pods and objects from the API server.
	Cluster *Cluster

	merge         *merge
	running       Running // nil: nothing to wait for
	frozen        bool
	runners       []runner
	synced, local *latch
}

// runner reads one source until ctx ends. It calls seen once it has read it.
type runner func(ctx context.Context, seen func()) error

// New returns sources that are idle until Run.
func New(o Options) *Sources {
	m := newMerge(o)
	s := &Sources{Desired: m.desired, Objects: m.objects, Problems: m.problems, Local: newLocal(o, m),
		Cluster: newCluster(m), merge: m, running: o.Running, frozen: o.Frozen}
	if o.Path != "" {
		s.runners = append(s.runners,
			directory.New(directory.Options{Path: o.Path, NodeName: o.NodeName, Period: o.Period, Settle: o.settle,
				Keep: o.Keep, Copies: o.Copies, Log: o.Log}, m).Run)
	}
	if o.URL != "" {
		s.runners = append(s.runners,
			url.New(url.Options{URL: o.URL, Header: o.URLHeader, NodeName: o.NodeName, Period: o.URLPeriod, Log: o.Log},
				m).Run)
	}
	s.local, s.synced = newLatch(1+len(s.runners)), newLatch(1)
	if o.Cluster {
		s.synced = newLatch(2)
		s.Cluster.seen = sync.OnceFunc(s.synced.lift)
	}
	return s
}

// Run reads all sources until ctx ends, and waits for its goroutines. It loads applied pods first, so that they get
// their names before manifests do. An error other than ctx's means that applied pods could not be read and the tables
// are incomplete.
func (s *Sources) Run(ctx context.Context) error {
	if err := s.Local.load(time.Now()); err != nil {
		return fmt.Errorf("load applied pods: %w", err)
	}
	if err := s.merge.static.Load(); err != nil {
		s.merge.log.Warn("load the identities of static pods failed, edited static pods restart", "err", err)
	}
	s.local.lift()
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range s.runners {
		seen := sync.OnceFunc(s.local.lift)
		group.Go(func() error {
			if s.running != nil {
				if err := s.running.Await(ctx); err != nil {
					return err
				}
			}
			return run(ctx, seen)
		})
	}
	if !s.frozen {
		group.Go(func() error { return s.merge.keepIdentities(ctx, s.LocalSynced()) })
	}
	group.Go(func() error {
		select {
		case <-s.LocalSynced():
			s.synced.lift()
		case <-ctx.Done():
		}
		return nil
	})
	return group.Wait()
}

// Synced is closed once every source has been read: the directory listed, the URL served, the API server's pods listed.
// Before that, a pod may be missing from Desired only because its source was not read yet.
func (s *Sources) Synced() <-chan struct{} { return s.synced.open }

// LocalSynced is closed once every source except the API server has been read. Before that, an object of a manifest may
// be missing only because its source was not read yet.
func (s *Sources) LocalSynced() <-chan struct{} { return s.local.open }

// Supplies reports whether a manifest or "berth apply" has an object of that name, even if the cluster's object
// replaces it.
func (s *Sources) Supplies(key object.Key) bool {
	s.merge.mu.Lock()
	defer s.merge.mu.Unlock()
	return s.merge.claims.supplied(key)
}

// latch opens after lift was called as often as it has bolts.
type latch struct {
	open chan struct{}

	mu    sync.Mutex
	bolts int
}

func newLatch(bolts int) *latch { return &latch{open: make(chan struct{}), bolts: bolts} }

func (l *latch) lift() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bolts--
	if l.bolts == 0 {
		close(l.open)
	}
}
