package registry

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Status answers the next requests for content, as many as times says, with a status code.
func Status(code int, times int32) Fault {
	var left atomic.Int32
	left.Store(times)
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		if left.Add(-1) < 0 {
			return false
		}
		w.WriteHeader(code)
		return true
	}
}

// serve answers with content, or with the requested range of it.
func serve(w http.ResponseWriter, r *http.Request, content []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// blob returns the whole blob that a request reads. It returns false if the request reads no blob, or not the blob of
// digest. An empty digest stands for any blob.
func blob(r *http.Request, next http.Handler, digest string) ([]byte, bool) {
	if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/"+digest) ||
		strings.Contains(r.URL.Path, "/blobs/uploads/") {
		return nil, false
	}
	w := httptest.NewRecorder()
	plain := r.Clone(r.Context())
	plain.Header.Del("Range")
	next.ServeHTTP(w, plain)
	return w.Body.Bytes(), w.Code == http.StatusOK
}

// Wrong answers requests for a blob with one bit changed.
func Wrong(digest string) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		content, ok := blob(r, next, digest)
		if !ok {
			return false
		}
		content = bytes.Clone(content)
		content[len(content)/2] ^= 1
		_, _ = w.Write(content)
		return true
	}
}

// Short answers requests for a blob with its first half, as if it was the whole blob.
func Short(digest string) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		content, ok := blob(r, next, digest)
		if !ok {
			return false
		}
		_, _ = w.Write(content[:len(content)/2])
		return true
	}
}

// Long answers requests for a blob with more bytes at its end.
func Long(digest string) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		content, ok := blob(r, next, digest)
		if ok {
			_, _ = w.Write(append(bytes.Clone(content), "and more"...))
		}
		return ok
	}
}

// Reset breaks the connection in the middle of a blob, as often as times says. Afterwards it serves the blob and its
// ranges, so that a client can resume.
func Reset(digest string, times int32) Fault {
	var left atomic.Int32
	left.Store(times)
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		content, ok := blob(r, next, digest)
		if !ok {
			return false
		}
		if left.Add(-1) < 0 {
			serve(w, r, content)
			return true
		}
		w.Header().Set("Content-Length", "1000000000")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(content[:len(content)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// Slow answers requests for a blob in pieces of so many bytes, with a pause after each.
func Slow(digest string, piece int, pause time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		content, ok := blob(r, next, digest)
		if !ok {
			return false
		}
		for len(content) > 0 {
			n := min(piece, len(content))
			if _, err := w.Write(content[:n]); err != nil {
				return true
			}
			_ = http.NewResponseController(w).Flush()
			content = content[n:]
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return true
			}
		}
		return true
	}
}

// Hang does not answer requests for a blob. It returns when the client ends the request.
func Hang(digest string) Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, "/blobs/"+digest) || r.Method != http.MethodGet {
			return false
		}
		<-r.Context().Done()
		return true
	}
}

// Stall answers requests for a blob with its first half, and with the rest when resume is closed.
func Stall(digest string, resume <-chan struct{}) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		content, ok := blob(r, next, digest)
		if !ok {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:len(content)/2])
		_ = http.NewResponseController(w).Flush()
		select {
		case <-resume:
			_, _ = w.Write(content[len(content)/2:])
		case <-r.Context().Done():
		}
		return true
	}
}

// Trickle answers requests for a blob in pieces of so many bytes, with a pause after each, and with the rest when
// resume is closed.
func Trickle(digest string, piece int, pause time.Duration, resume <-chan struct{}) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		content, ok := blob(r, next, digest)
		if !ok {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		for len(content) > 0 {
			n := min(piece, len(content))
			select {
			case <-resume:
				n = len(content)
			case <-time.After(pause):
			case <-r.Context().Done():
				return true
			}
			if _, err := w.Write(content[:n]); err != nil {
				return true
			}
			_ = http.NewResponseController(w).Flush()
			content = content[n:]
		}
		return true
	}
}
