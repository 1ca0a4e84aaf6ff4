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
)

// Options say where pods come from.
type Options struct {
	// NodeName is put into every pod and behind the names of static pods.
	NodeName string
	// Path is the directory of manifests, or one manifest; empty: none.
	Path string
	// Period between two full checks of Path; more than 0 (fileCheckFrequency).
	Period time.Duration
	// URL of a manifest; empty: none.
	URL string
	// URLHeader is sent with each request.
	URLHeader http.Header
	// URLPeriod between two requests; more than 0 (httpCheckFrequency).
	URLPeriod time.Duration
	// Applied is the directory in which pods of "berth apply" are kept; other
	// objects are below it.
	Applied string
	// Identities is the file in which is kept who the pods of manifests are;
	// empty: in memory only.
	Identities string
	// Cluster says that pods come from an API server too, by way of
	// Sources.Cluster: Synced waits for it.
	Cluster bool
	// Adopt says which pod runs already for the pod of a manifest that has not been
	// read before, under another UID (package takeover); nil: none does. Manifests
	// are read when Await has returned: once Adopt can tell.
	Adopt func(*pod.Pod) (types.UID, bool)
	Await func(context.Context) error
	Log   *slog.Logger
	// Report is told of each problem once.
	Report reporter
	// Taken says that the node has taken a pod on; required. From then on the pod
	// keeps what its RuntimeClass gave it; before, it goes by the class there is.
	Taken func(types.UID) bool

	settle time.Duration // see dir; 0: settleTime
}

// Sources are all the places that pods come from. Make it with New, then Run it.
type Sources struct {
	// Desired are the pods that are to run, by UID.
	Desired *store.Table[types.UID, *pod.Pod]
	// Objects are what pods name besides themselves.
	Objects *object.Table
	// Problems are the manifests, or parts of them, that could not be taken.
	Problems *store.Table[ProblemKey, Problem]
	// Local takes pods from the agent's API.
	Local *Local
	// Cluster takes pods and objects from the API server.
	Cluster *Cluster

	merge         *merge
	await         func(context.Context) error
	runners       []runner
	synced, local *latch
}

// runner reads one place until ctx ends; it calls seen once it has been read.
type runner func(ctx context.Context, seen func()) error

// New returns sources that do nothing until Run.
func New(o Options) *Sources {
	m := newMerge(o)
	s := &Sources{Desired: m.desired, Objects: m.objects, Problems: m.problems, Local: newLocal(o, m),
		Cluster: newCluster(m), merge: m, await: o.Await}
	if s.await == nil {
		s.await = func(context.Context) error { return nil }
	}
	if o.Path != "" {
		s.runners = append(s.runners, newDir(o, m).run)
	}
	if o.URL != "" {
		s.runners = append(s.runners, newURL(o, m).run)
	}
	s.local, s.synced = newLatch(1+len(s.runners)), newLatch(1)
	if o.Cluster {
		s.synced = newLatch(2)
		s.Cluster.seen = sync.OnceFunc(s.synced.lift)
	}
	return s
}

// Run reads all sources until ctx ends, and returns when nothing of it runs any
// more. Pods that were applied earlier come first: a name that they have is not
// given to a manifest. An error other than ctx's means that these could not be
// read, and that nothing may be concluded from the tables.
func (s *Sources) Run(ctx context.Context) error {
	if err := s.Local.load(time.Now()); err != nil {
		return fmt.Errorf("load applied pods: %w", err)
	}
	if err := s.merge.static.Load(); err != nil {
		s.merge.log.Warn("load who the pods of manifests are", "err", err)
	}
	s.local.lift()
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range s.runners {
		seen := sync.OnceFunc(s.local.lift)
		group.Go(func() error {
			if err := s.await(ctx); err != nil {
				return err
			}
			return run(ctx, seen)
		})
	}
	group.Go(func() error { return s.merge.keep(ctx, s.LocalSynced()) })
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

// Synced is closed once every source has been read: the directory listed, the
// URL served, the API server's pods listed. Before that, a pod that is not desired
// may just not be known yet.
func (s *Sources) Synced() <-chan struct{} { return s.synced.open }

// LocalSynced is closed once every source but the API server has been read. Before
// that, an object of a manifest that is not there may just not be known yet.
func (s *Sources) LocalSynced() <-chan struct{} { return s.local.open }

// Supplies says whether a manifest, or what was applied, has an object of that
// name, also while the cluster's is in its place.
func (s *Sources) Supplies(key object.Key) bool {
	s.merge.mu.Lock()
	defer s.merge.mu.Unlock()
	return s.merge.supplied(key)
}

// latch opens when it was lifted as often as it has bolts.
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
