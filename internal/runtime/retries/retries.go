package retries

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth/internal/base/idle"
	"github.com/berth-run/berth/internal/runtime/replace"
)

const (
	// often is containerd's own period.
	often  = time.Second
	seldom = 30 * time.Second
	// memory is how long the period is often after the end of a container. After containerd's first five delays, 31 s,
	// the next one is no shorter than seldom.
	memory = 32 * time.Second
)

// Retries has the tickers of containerd's event monitors.
type Retries struct{ tickers []*time.Ticker }

// Of finds the tickers of the CRI plugin and of the controller of pause containers, which have started. The error says
// that containerd has changed, which every test of the runtime notices.
func Of(cri, controller any) (*Retries, error) {
	one, err := replace.Field[*time.Ticker](cri, "Closer", "eventMonitor", "backOff", "ticker")
	other, failed := replace.Field[*time.Ticker](controller, "eventMonitor", "backOff", "ticker")
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("find when containerd retries events: %w", err)
	}
	return &Retries{[]*time.Ticker{*one, *other}}, nil
}

// Run sets the periods of the tickers until ctx ends. ended fires after the end of a container.
func (r *Retries) Run(ctx context.Context, ended <-chan struct{}) {
	r.reset(seldom)
	idle.Follow(ctx, ended, memory, 0, func(first bool) {
		if first {
			r.reset(often)
		}
	}, func() { r.reset(seldom) })
}

func (r *Retries) reset(period time.Duration) {
	for _, ticker := range r.tickers {
		ticker.Reset(period)
	}
}
