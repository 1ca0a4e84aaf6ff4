package url

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/content"
)

const (
	// fetchTimeout limits one request, from the connection to the last byte.
	fetchTimeout = 10 * time.Second
	// loudFailures is how many failures in a row are logged as warnings. Later ones are logged at debug level.
	loudFailures = 3
)

// URL polls a manifest. The last manifest counts until the server returns another one.
type URL struct {
	url    string
	header http.Header
	node   string
	period time.Duration
	out    content.Sink
	log    *slog.Logger
	client *http.Client

	last     []byte
	wanted   content.Wanted
	failures int
}

// Options configures a URL.
type Options struct {
	// URL is the address of the manifest.
	URL string
	// Header is sent with each request.
	Header http.Header
	// NodeName is set in every pod, and appended to its name.
	NodeName string
	// Period is the time between two requests.
	Period time.Duration
	Log    *slog.Logger
}

// New returns a URL that writes to out. It fetches nothing before Run.
func New(o Options, out content.Sink) *URL {
	return &URL{
		url:    o.URL,
		header: o.Header,
		node:   o.NodeName,
		period: o.Period,
		out:    out,
		log:    o.Log,
		client: &http.Client{Timeout: fetchTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}},
	}
}

// Run fetches the manifest at once and then once a period, until ctx ends. It calls seen after each success.
func (u *URL) Run(ctx context.Context, seen func()) error {
	defer u.client.CloseIdleConnections()
	tick := time.NewTicker(u.period)
	defer tick.Stop()
	for {
		text, err := u.fetch(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		u.update(text, err, time.Now())
		if err == nil {
			seen()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (u *URL) fetch(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range u.header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host // net/http ignores the header
	}
	response, err := u.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server returned %s", response.Status)
	}
	text, err := document.ReadAll(response.Body)
	if errors.Is(err, document.ErrTooLarge) {
		return nil, fmt.Errorf("the manifest %w", err)
	}
	return text, err
}

// update passes on what was fetched, or the failure.
func (u *URL) update(text []byte, err error, now time.Time) {
	if err != nil {
		u.failures++
		level := slog.LevelWarn
		if u.failures > loudFailures {
			level = slog.LevelDebug
		}
		u.log.Log(context.Background(), level, "fetch manifest failed, retrying", "url", u.url, "failures", u.failures,
			"err", err)
		u.last = nil
		u.out.Put(u.url, u.wanted,
			[]content.Problem{{Origin: u.url, Err: fmt.Errorf("fetch manifest %s: %w", u.url, err)}},
			now)
		return
	}
	u.failures = 0
	if u.last != nil && bytes.Equal(text, u.last) {
		return
	}
	w, problems := content.Build(text, u.url, pod.SourceURL, u.node)
	u.last, u.wanted = text, content.Keep(u.wanted, w, content.Faulty(problems))
	u.out.Put(u.url, u.wanted, problems, now)
}
