package probe

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"time"
)

// newTransport has a connection for each probe, no proxy, and takes any
// certificate: a probe asks whether the server works, not who it is.
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

// askHTTP sends a request: 200 to 399 is success. A redirect to another host is
// not followed; it is success too, with a warning.
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
		// The body is not shown: it may hold what is not for the readers of events.
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
