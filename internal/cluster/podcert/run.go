package podcert

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/clock"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

// longestSleep bounds the sleep until a certificate is due: a timer does not notice that the machine's clock was set
// ahead or that the machine was suspended.
const longestSleep = time.Minute

// createTimeout limits one try to create a request.
const createTimeout = 30 * time.Second

// Run requests and refreshes the certificates until ctx ends.
func (c *Certificates) Run(ctx context.Context) error {
	var creating sync.WaitGroup
	defer creating.Wait()
	alarm := wake.NewAlarm()
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.cfg.RequestsChanged.C():
		case <-alarm.C():
		}
		now := time.Now()
		create, next := c.pass(now)
		for _, e := range create {
			creating.Go(func() { c.create(ctx, e) })
		}
		if !next.IsZero() && next.After(now.Add(longestSleep)) {
			next = now.Add(longestSleep)
		}
		alarm.Set(next, now)
	}
}

// pass looks at all sources. It returns the ones to create a request for, which are busy from now on, and the time of
// the next pass.
func (c *Certificates) pass(now time.Time) (create []*entry, next time.Time) {
	changed := map[object.Key]bool{}
	c.mu.Lock()
	for _, e := range c.entries {
		if e.busy {
			continue
		}
		if c.look(e, now) {
			changed[object.CertificatesOf(e.pod)] = true
		}
		due := e.state.due()
		switch wants := e.state.wants(now); {
		case wants && (e.retry.IsZero() || clock.Passed(e.retry, now)):
			e.busy = true
			create = append(create, e)
			continue
		case wants:
			due = e.retry
		}
		if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	c.mu.Unlock()
	if len(changed) > 0 {
		c.cfg.Changed.AddAll(changed)
	}
	return create, next
}

// look brings a source up to date with its request. It reports whether the files or the reason for their lack changed.
func (c *Certificates) look(e *entry, now time.Time) bool {
	var found *certificatesv1beta1.PodCertificateRequest
	if e.state.pending != nil {
		found = c.cfg.Requests.CertificateRequest(e.pod.Namespace, e.state.pending.name)
	}
	before := e.state
	var notices []notice
	e.state, notices = before.look(found, e.pod.Namespace, now, rand.N(maxJitter))
	for _, n := range notices {
		c.cfg.Events.Event(event.PodRef(e.pod), corev1.EventTypeWarning, n.reason, "%s", n.message)
	}
	return before.current != e.state.current || before.refused != e.state.refused
}

// create creates a request for a source that is busy.
func (c *Certificates) create(ctx context.Context, e *entry) {
	select {
	case c.creating <- struct{}{}:
		defer func() { <-c.creating }()
	case <-ctx.Done():
		return
	}
	name, key, err := c.request(ctx, e.pod, e.want)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	c.mu.Lock()
	e.busy, e.err = false, err
	if err == nil {
		e.failures, e.retry = 0, time.Time{}
		e.state.pending = &request{name: name, key: key, abandon: now.Add(abandonAfter + rand.N(maxJitter))}
	} else {
		e.failures++
		e.retry = now.Add(retry.Delay(retryFirst, retryMax, e.failures))
	}
	failures, again := e.failures, e.retry
	c.mu.Unlock()
	c.cfg.RequestsChanged.Wake()
	if failures >= shownFailure {
		c.cfg.Log.Warn("cannot request a certificate for a pod, retrying", "pod", pod.FullName(e.pod), "signer",
			e.want.SignerName, "err", err, "in", again.Sub(now))
	}
	if err == nil || failures >= shownFailure {
		c.cfg.Changed.AddAll(map[object.Key]bool{object.CertificatesOf(e.pod): true}) // a pod that waits can say why
	}
}

// shownFailure is the number of the first failure in a row that users see. Earlier failures are common: the authorizer
// learns of a pod on a node a moment after the node does.
const shownFailure = 5

// request creates a PodCertificateRequest with a new key.
func (c *Certificates) request(ctx context.Context, p *corev1.Pod,
	want *corev1.PodCertificateProjection) (name string, key []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	account, err := c.cfg.Accounts.Account(ctx, p.Namespace, p.Spec.ServiceAccountName)
	if err != nil {
		return "", nil, fmt.Errorf("read service account %s/%s: %w", p.Namespace, p.Spec.ServiceAccountName, err)
	}
	node, known := c.cfg.Nodes.Get(c.cfg.NodeName)
	if !known {
		return "", nil, fmt.Errorf("the API server has not sent the Node %s", c.cfg.NodeName)
	}
	key, proof, err := newKey(want.KeyType)
	if err != nil {
		return "", nil, err
	}
	created, err := c.cfg.Client.CertificatesV1beta1().PodCertificateRequests(p.Namespace).Create(ctx,
		&certificatesv1beta1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "req-", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}},
			Spec: certificatesv1beta1.PodCertificateRequestSpec{
				SignerName: want.SignerName, PodName: p.Name, PodUID: p.UID,
				ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
				NodeName: types.NodeName(node.Name), NodeUID: node.UID,
				MaxExpirationSeconds: want.MaxExpirationSeconds, StubPKCS10Request: proof,
				UnverifiedUserAnnotations: want.UserAnnotations,
			},
		}, metav1.CreateOptions{})
	if err != nil {
		return "", nil, fmt.Errorf("create a PodCertificateRequest: %w", err)
	}
	return created.Name, key, nil
}
