package probe

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"time"
)

// newTransport returns a transport with one connection per probe and no proxy. It accepts any certificate: a probe
// checks whether the server works, not its identity.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:         dialer().DialContext,
		DisableKeepAlives:   true,
		DisableCompression:  true,
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout: 10 * time.Second,
	}
}

// askHTTP sends a request. A status of 200 to 399 is success. It does not follow a redirect to another host, but
// reports success with a warning.
func askHTTP(transport http.RoundTripper, req *http.Request, timeout time.Duration) answer {
	client := &http.Client{Timeout: timeout, Transport: transport, CheckRedirect: sameHost}
	res, err := client.Do(req)
	if err != nil {
		return failed("%s", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	switch {
	case err != nil:
		return answer{result: failure, err: err}
	case res.StatusCode < http.StatusOK || res.StatusCode >= http.StatusBadRequest:
		// The body is left out: the readers of events may not be allowed to see it.
		return failed("HTTP probe failed with statuscode: %d", res.StatusCode)
	case res.StatusCode >= http.StatusMultipleChoices:
		return answer{result: warning, output: "Probe terminated redirects, Response body: " + string(body)}
	}
	return answer{result: success, output: string(body)}
}

func sameHost(req *http.Request, via []*http.Request) error {
	switch {
	case req.URL.Hostname() != via[0].URL.Hostname():
		return http.ErrUseLastResponse
	case len(via) >= 10:
		return errors.New("stopped after 10 redirects")
	}
	return nil
}
