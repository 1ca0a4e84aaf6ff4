package cert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth/internal/base/dirwatch"
	"github.com/berth-run/berth/internal/base/wake"
)

// Delays between two requests. retryFirst doubles with each failure up to retryMax. aheadMax is the maximum if a new
// certificate has already expired, because the node's clock is ahead of the signer's.
const (
	retryFirst = 2 * time.Second
	retryMax   = time.Minute
	aheadMax   = 5 * time.Minute
)

// source is where a keeper finds a certificate, and how it gets a new one.
type source interface {
	// files returns the files that read uses. They are watched.
	files() []string
	// read returns the best pair, or nil if there is none.
	read() (*tls.Certificate, error)
	// want describes the wanted certificate.
	want(current *tls.Certificate) subject
	// request stores a new pair where read finds it.
	request(ctx context.Context) error
	// expired reports a certificate that has expired.
	expired(leaf *x509.Certificate)
}

// keeper keeps one certificate. It reads the files of its source when they change, and requests a new certificate when
// it is due.
type keeper struct {
	source source
	log    *slog.Logger
	wanted <-chan struct{} // receives when the result of want has changed
	life   float64         // see subject.Life

	current  atomic.Pointer[tls.Certificate]
	ready    chan struct{} // closed with the first pair, or if none is needed
	open     func()        // closes ready, once
	replaced wake.Signal   // another pair has replaced one
	failures atomic.Uint64 // failed requests

	// Used by Load, and then only by run.
	loadedAt time.Time         // when the pair was loaded; zero for the pair of Load
	warned   *x509.Certificate // the expired certificate that was logged
	fault    string            // the last error of read
	retry    time.Duration
	runs     bool
}

func newKeeper(s source, log *slog.Logger, wanted <-chan struct{}) *keeper {
	ready := make(chan struct{})
	return &keeper{
		source: s, log: log, wanted: wanted, life: life(), ready: ready,
		open: sync.OnceFunc(func() { close(ready) }), replaced: wake.New(),
	}
}

// reload reads the files and uses a new pair.
func (k *keeper) reload(now time.Time) {
	pair, err := k.source.read()
	if err != nil {
		if k.fault != err.Error() {
			k.log.Warn("cannot read certificate, the current one stays in use", "err", err)
		}
		k.fault = err.Error()
		return
	}
	k.fault = ""
	before := k.current.Load()
	if pair != nil && (before == nil || !bytes.Equal(before.Leaf.Raw, pair.Leaf.Raw)) {
		k.current.Store(pair)
		if k.runs {
			k.loadedAt = now
		}
		k.log.Info("certificate loaded", "subject", pair.Leaf.Subject.CommonName, "notAfter", pair.Leaf.NotAfter)
		if before == nil {
			k.open()
		} else {
			k.replaced.Wake()
		}
	}
	if pair = k.current.Load(); pair != nil && !now.Before(pair.Leaf.NotAfter) && k.warned != pair.Leaf {
		k.warned = pair.Leaf
		k.log.Warn("certificate has expired, a renewed file is loaded automatically", "subject",
			pair.Leaf.Subject.CommonName, "notAfter", pair.Leaf.NotAfter)
		k.source.expired(pair.Leaf)
	}
}

func (k *keeper) next(now time.Time) action {
	pair := k.current.Load()
	var leaf *x509.Certificate
	if pair != nil {
		leaf = pair.Leaf
	}
	want := k.source.want(pair)
	want.Life, want.Taken = k.life, k.loadedAt
	return next(leaf, want, now)
}

// run keeps the certificate until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	k.runs = true
	watcher := dirwatch.Start(recheckInterval, k.log)
	defer watcher.Close()
	var (
		results = make(chan error)
		stop    context.CancelFunc // of the running request; nil: none runs
		after   time.Time          // the earliest time of the next request
	)
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer func() {
		if stop != nil {
			stop()
			if err := <-results; err != nil {
				k.log.Debug("request for a certificate was interrupted", "err", err)
			}
		}
	}()
	for {
		for _, file := range k.source.files() {
			if err := watcher.Add(filepath.Dir(file)); err != nil {
				k.log.Debug("cannot watch the directory of a certificate", "file", file, "err", err)
			}
		}
		now := time.Now()
		k.reload(now)
		a := k.next(now)
		if a.Request && stop == nil && !now.Before(after) {
			requesting, cancel := context.WithCancel(ctx)
			stop = cancel
			go func() { results <- k.source.request(requesting) }()
		}
		timer.Reset(k.pause(a, after, now, stop != nil))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-watcher.Changes():
		case <-k.wanted:
			if stop != nil {
				stop() // the request is outdated
			}
		case err := <-results:
			stop()
			stop = nil
			after = k.requested(ctx, err, time.Now())
		}
	}
}

// pause returns how long to wait for an event.
func (k *keeper) pause(a action, after, now time.Time, requesting bool) time.Duration {
	switch {
	case k.fault != "":
		return time.Second
	case a.Request && requesting:
		return recheckInterval
	case a.Request:
		return after.Sub(now)
	}
	// A timer does not notice when the clock is set. The minute limits the delay.
	return min(a.At.Sub(now), time.Minute)
}

// requested records the outcome of a request, and returns the earliest time of the next one.
func (k *keeper) requested(ctx context.Context, err error, now time.Time) time.Time {
	limit := retryMax
	if err == nil {
		k.reload(now)
		limit = aheadMax
	}
	if pair := k.current.Load(); ctx.Err() != nil || err == nil && (pair == nil || now.Before(pair.Leaf.NotAfter)) {
		k.retry = 0
		return now
	}
	k.retry = min(max(2*k.retry, retryFirst), limit)
	if err != nil {
		k.failures.Add(1)
		k.log.Warn("cannot get a new certificate, retrying", "err", err, "after", k.retry)
	}
	return now.Add(k.retry)
}
