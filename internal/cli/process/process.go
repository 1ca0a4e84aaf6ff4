package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/berth-run/berth/internal/api/client"
)

// ErrForced means that a second signal ended the process before its work was done.
var ErrForced = errors.New("ended by a second signal")

// OnSignals returns a context that ends at the first SIGTERM or SIGINT, and a channel that closes at the
// second one.
func OnSignals(parent context.Context, log *slog.Logger) (context.Context, <-chan struct{}, func()) {
	ctx, cancel := context.WithCancel(parent)
	forced := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case sig := <-signals:
				if n > 0 {
					close(forced)
					return
				}
				log.Info("shutting down; a second signal ends the process without waiting", "signal", sig.String())
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, forced, func() { signal.Stop(signals); close(done); cancel() }
}

// Until runs work and returns its result. If forced closes first, it returns ErrForced and leaves the work
// unfinished, because the process is about to end.
func Until(forced <-chan struct{}, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-forced:
		return client.Next(ErrForced, "the containers run on: start the command again to take them over")
	}
}

// Notify reports the agent's state to systemd (sd_notify(3)) until ctx ends: that it is ready, that it is
// alive as long as its local API reports it healthy, and that it is stopping.
func Notify(ctx context.Context, c *client.Client, log *slog.Logger) error {
	send := func(state string) {
		if err := notify(state); err != nil {
			log.Warn("cannot notify systemd", "state", state, "err", err)
		}
	}
	send(daemon.SdNotifyReady)
	defer send(daemon.SdNotifyStopping)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("cannot read the watchdog interval of systemd, running without a watchdog", "err", err)
	}
	if err != nil || interval == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		if err := healthy(ctx, c, interval/2); err == nil {
			send(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			log.Error("agent is unhealthy, systemd will restart it unless it recovers", "err", err, "watchdog",
				interval)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// notifyTimeout limits one message to systemd. A service manager that does not read fills the queue of its socket (10
// messages by default, unix(7)). The agent must not hang then, least of all when it ends.
const notifyTimeout = time.Second

// notify sends one message (sd_notify(3)). It does nothing without a service manager. It is not the library's SdNotify,
// which waits for ever while the queue is full.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

func healthy(ctx context.Context, c *client.Client, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.Healthy(ctx)
}

// Addresses is a flag with a list of IP addresses.
type Addresses []netip.Addr

// MarshalText returns the value of the flag.
func (a Addresses) MarshalText() ([]byte, error) {
	var all []string
	for _, ip := range a {
		all = append(all, ip.String())
	}
	return []byte(strings.Join(all, ",")), nil
}

// UnmarshalText sets the flag from a list separated by commas.
func (a *Addresses) UnmarshalText(text []byte) error {
	*a = nil
	for one := range strings.SplitSeq(string(text), ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(one))
		if err != nil {
			return err
		}
		*a = append(*a, ip)
	}
	return nil
}
