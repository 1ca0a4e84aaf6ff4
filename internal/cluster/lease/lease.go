package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/store"
)

const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 7 * time.Second
	// fraction of the duration is the renewal interval, as for the kubelet: a quarter.
	fraction = 4
)

// Options of a Renewer.
type Options struct {
	// Client is the client for heartbeats.
	Client kubernetes.Interface
	// Node is the name of the node and of the lease.
	Node string
	// Nodes has the Node object, by name, once it was received. It owns the lease. Before that no lease is created,
	// because it would stay when the node is deleted.
	Nodes *store.Table[string, *corev1.Node]
	// Duration is nodeLeaseDurationSeconds, at least 1 s. Default 40 s.
	Duration time.Duration
	Log      *slog.Logger
}

// Renewer renews the lease.
type Renewer struct {
	o      Options
	leases client.LeaseInterface
	last   *coordinationv1.Lease // the last one written, of Run
}

// New returns a Renewer.
func New(o Options) *Renewer {
	if o.Duration <= 0 {
		o.Duration = 40 * time.Second
	}
	return &Renewer{o: o, leases: o.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)}
}

// Run renews the lease until ctx ends. It leaves the lease in place: an agent that comes back within the duration
// counts as alive all the time.
func (r *Renewer) Run(ctx context.Context) error {
	every := r.o.Duration / fraction
	for failures := 0; ctx.Err() == nil; {
		wait := time.Duration(float64(every) * (1 + 0.04*rand.Float64()))
		began := time.Now()
		err := r.renew(ctx, every)
		switch {
		case err != nil:
			failures++
			wait = min(retry.Delay(firstRetry, lastRetry, failures), every)
			if ctx.Err() == nil && !errors.Is(err, errNoNode) && (failures == 1 || failures%10 == 0) {
				r.o.Log.Warn("cannot renew the lease of the node, retrying", "err", err, "failures", failures, "after",
					wait)
			}
		default:
			failures = 0
			wait = max(0, wait-time.Since(began))
		}
		_ = retry.Sleep(ctx, wait) // the loop ends with ctx
	}
	return nil
}

// owner returns the UID of the Node object, or "" before it was received.
func (r *Renewer) owner() types.UID {
	if n, ok := r.o.Nodes.Get(r.o.Node); ok {
		return n.UID
	}
	return ""
}

// errNoNode is not logged: the Node object is being registered.
var errNoNode = errors.New("the Node object was not received yet")

// renew updates the lease that was written last. It reads the lease only if the update fails because somebody else
// changed it.
func (r *Renewer) renew(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	owner := r.owner()
	if r.last == nil {
		l, err := r.leases.Get(ctx, r.o.Node, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && owner == "":
			return fmt.Errorf("create lease %s: %w", r.o.Node, errNoNode)
		case apierrors.IsNotFound(err):
			l, err = r.leases.Create(ctx, Next(nil, r.o.Node, owner, r.o.Duration, time.Now()), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create lease %s: %w", r.o.Node, err)
			}
			r.last = l
			return nil
		case err != nil:
			return fmt.Errorf("get lease %s: %w", r.o.Node, err)
		}
		r.last = l
	}
	l, err := r.leases.Update(ctx, Next(r.last, r.o.Node, owner, r.o.Duration, time.Now()), metav1.UpdateOptions{})
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			r.last = nil
		}
		return fmt.Errorf("renew lease %s: %w", r.o.Node, err)
	}
	r.last = l
	return nil
}
