package probe

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// FuzzHTTP probes a server that answers each connection with the same bytes. Whatever they are, the probe ends with a
// result that fits its output, and keeps only the beginning of the body.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 302 Found\r\nLocation: /here\r\n\r\n",
		"HTTP/1.1 301 Moved\r\nLocation: http://192.0.2.9/there\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
		"HTTP/1.0 503 Busy\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, response []byte) {
		transport := newTransport()
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			probe, server := net.Pipe()
			go func() {
				defer server.Close()
				go func() { _, _ = io.Copy(io.Discard, server) }() // ends with the connection
				_, _ = server.Write(response)                      // the probe may close early
			}()
			return probe, nil
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://192.0.2.1/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		a := askHTTP(transport, req, 5*time.Second)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the probe took %v", took)
		}
		const most = maxOutput + len("Probe terminated redirects, Response body: ")
		switch {
		case a.result != success && a.result != warning && a.result != failure:
			t.Errorf("result %v", a.result)
		case a.result != failure && (a.err != nil || len(a.output) > most):
			t.Errorf("result %v with error %v and output of %d bytes", a.result, a.err, len(a.output))
		case a.result == failure && a.err == nil && a.output == "":
			t.Error("a failure without a reason")
		}
	})
}
