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
)

const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 7 * time.Second
	// fraction of the duration after which a lease is renewed, as by the kubelet.
	fraction = 4
)

// Options of a Renewer.
type Options struct {
	// Client is the one for heartbeats.
	Client kubernetes.Interface
	// Node is the name of the node and of the lease.
	Node string
	// Owner is the uid of the Node object as last heard of, "" before. Without one
	// no lease is made: it would stay when the node goes.
	Owner func() types.UID
	// Duration is nodeLeaseDurationSeconds, at least 1 s. Default 40 s.
	Duration time.Duration
	Log      *slog.Logger
}

// Renewer renews the lease.
type Renewer struct {
	o      Options
	leases client.LeaseInterface
	last   *coordinationv1.Lease // of Run
}

// New returns a renewer that has not begun.
func New(o Options) *Renewer {
	if o.Duration <= 0 {
		o.Duration = 40 * time.Second
	}
	return &Renewer{o: o, leases: o.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)}
}

// Run renews until ctx ends. The lease is left as it is: an agent that comes back
// within its duration was never away.
func (r *Renewer) Run(ctx context.Context) error {
	every := r.o.Duration / fraction
	retry := firstRetry
	for failed := 0; ctx.Err() == nil; {
		wait := time.Duration(float64(every) * (1 + 0.04*rand.Float64()))
		began := time.Now()
		err := r.renew(ctx, every)
		switch {
		case err != nil:
			if failed++; ctx.Err() == nil && !errors.Is(err, errNoNode) && (failed == 1 || failed%10 == 0) {
				r.o.Log.Warn("Cannot renew the lease of the node", "err", err, "in a row", failed)
			}
			wait = min(retry, every)
			retry = min(2*retry, lastRetry)
		default:
			failed, retry = 0, firstRetry
			wait = max(0, wait-time.Since(began))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

// errNoNode is no trouble by itself: the Node object is on its way.
var errNoNode = errors.New("the Node object has not been heard of yet")

// renew writes the lease on top of the one written before; what somebody else did
// to it is asked for only when that fails.
func (r *Renewer) renew(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	owner := r.o.Owner()
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
