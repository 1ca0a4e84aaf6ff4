package cert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Between two requests after one that failed, or whose answer had expired by then:
// the node's clock is ahead of the signer's.
const (
	retryFirst = 2 * time.Second
	retryMax   = time.Minute
	aheadMax   = 5 * time.Minute
)

// keeper is what both certificates have in common: the files are read when they
// change, and a new certificate is asked for when it is time.
type keeper struct {
	log *slog.Logger
	// files are what read looks at; they are watched.
	files func() []string
	// read gives the pair that is of most use, nil without one.
	read func() (*tls.Certificate, error)
	// want says what the pair is to be.
	want func(*tls.Certificate) subject
	// ask puts a new pair where read finds it.
	ask func(context.Context) error
	// changed and expired are told of the pair that is used.
	changed func()
	expired func(*x509.Certificate)
	// wake says that want has changed.
	wake <-chan struct{}

	current atomic.Pointer[tls.Certificate]
	ready   chan struct{} // closed with the first pair, or where none is needed
	open    func()        // closes ready, once
	failures

	// Used by Load, then by run alone.
	taken time.Time         // when the pair was taken, zero for that of Load
	told  *x509.Certificate // that expired and was told of
	fault string            // the last error of read
	retry time.Duration
	runs  bool
}

// look reads the files and takes a pair that is new.
func (k *keeper) look(now time.Time) {
	pair, err := k.read()
	if err != nil {
		if k.fault != err.Error() {
			k.log.Warn("cannot read certificate; the one that is there is used", "err", err)
		}
		k.fault = err.Error()
		return
	}
	k.fault = ""
	before := k.current.Load()
	if pair != nil && (before == nil || !bytes.Equal(before.Leaf.Raw, pair.Leaf.Raw)) {
		k.current.Store(pair)
		if k.runs {
			k.taken = now
		}
		k.log.Info("certificate", "subject", pair.Leaf.Subject.CommonName, "notAfter", pair.Leaf.NotAfter)
		if before == nil {
			k.open()
		} else {
			k.changed()
		}
	}
	if pair = k.current.Load(); pair != nil && !now.Before(pair.Leaf.NotAfter) && k.told != pair.Leaf {
		k.told = pair.Leaf
		k.log.Warn("certificate has expired; a renewed file is taken up by itself", "subject",
			pair.Leaf.Subject.CommonName, "notAfter", pair.Leaf.NotAfter)
		k.expired(pair.Leaf)
	}
}

func (k *keeper) next(now time.Time) action {
	pair := k.current.Load()
	var leaf *x509.Certificate
	if pair != nil {
		leaf = pair.Leaf
	}
	want := k.want(pair)
	want.Taken = k.taken
	return next(leaf, want, now)
}

// run keeps the certificate until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	k.runs = true
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch certificates: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	var (
		asking = make(chan error)
		stop   context.CancelFunc // not nil: asking
		after  time.Time          // no request before
	)
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer func() {
		if stop != nil {
			stop()
			if err := <-asking; err != nil {
				k.log.Debug("asking for a certificate was interrupted", "err", err)
			}
		}
	}()
	for {
		for _, file := range k.files() {
			if err := watcher.Add(filepath.Dir(file)); err != nil {
				k.log.Debug("cannot watch certificate", "file", file, "err", err)
			}
		}
		now := time.Now()
		k.look(now)
		a := k.next(now)
		if a.Request && stop == nil && !now.Before(after) {
			asked, cancel := context.WithCancel(ctx)
			stop = cancel
			go func() { asking <- k.ask(asked) }()
		}
		timer.Reset(k.pause(a, after, now, stop != nil))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-watcher.Events:
			drain(watcher.Events)
		case err := <-watcher.Errors:
			k.log.Warn("watch certificates", "err", err)
		case <-k.wake:
			if stop != nil {
				stop() // it asks for what is not wanted any more
			}
		case err := <-asking:
			stop()
			stop = nil
			after = k.asked(ctx, err, time.Now())
		}
	}
}

// pause is how long to wait for something to happen.
func (k *keeper) pause(a action, after, now time.Time, asking bool) time.Duration {
	switch {
	case k.fault != "":
		return time.Second
	case a.Request && asking:
		return lookAgain
	case a.Request:
		return after.Sub(now)
	}
	// A timer does not see that the clock is set: it is looked at.
	return min(a.At.Sub(now), time.Minute)
}

// asked is when to ask again.
func (k *keeper) asked(ctx context.Context, err error, now time.Time) time.Time {
	limit := retryMax
	if err == nil {
		k.look(now)
		limit = aheadMax
	}
	if pair := k.current.Load(); ctx.Err() != nil || err == nil && (pair == nil || now.Before(pair.Leaf.NotAfter)) {
		k.retry = 0
		return now
	}
	k.retry = min(max(2*k.retry, retryFirst), limit)
	if err != nil {
		k.count.Add(1)
		k.log.Warn("no new certificate", "err", err, "again", k.retry)
	}
	return now.Add(k.retry)
}

func drain(events <-chan fsnotify.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}
