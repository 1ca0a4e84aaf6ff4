package source

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/model/pod"
)

// server returns the status and body that the test sets.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	body   string
	header http.Header
}

func serve(t *testing.T, body string) *server {
	s := &server{status: http.StatusOK, body: body}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.header = r.Header.Clone()
		s.header.Set("Host", r.Host)
		w.WriteHeader(s.status)
		fmt.Fprint(w, s.body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) say(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

func TestURL(t *testing.T) {
	s := serve(t, "")
	s.say(http.StatusServiceUnavailable, "")
	r := start(t, Options{
		URL: s.URL, URLPeriod: 5 * time.Millisecond,
		URLHeader: http.Header{"x-token": {"a", "b"}, "Host": {"manifests.example"}},
	})
	unavailable := "fetch manifest " + s.URL + ": the server returned 503 Service Unavailable"
	r.await(nil, unavailable)
	if r.synced() {
		t.Error("synced before the manifest was served")
	}

	s.say(http.StatusOK, docs(manifestOf("web", "a"), manifestOf("db", "b")))
	r.await([]string{dbPod, webPod})
	r.awaitSynced()
	web := r.get(webPod)
	if web.Source != pod.SourceURL || web.Origin != s.URL || len(web.Spec.Tolerations) != 0 {
		t.Errorf("source %s, origin %s, tolerations %v", web.Source, web.Origin, web.Spec.Tolerations)
	}
	s.mu.Lock()
	if got := fmt.Sprint(s.header["X-Token"], s.header["Host"]); got != "[a b] [manifests.example]" {
		t.Errorf("headers sent: %s", got)
	}
	s.mu.Unlock()

	// The pods stay after every kind of failure.
	s.say(http.StatusOK, "")
	r.await([]string{dbPod, webPod}, s.URL+": is empty; next: remove it, or give it an empty List if no pod should run")
	s.say(http.StatusOK, "kind: [")
	r.await([]string{dbPod, webPod}, "FailedValidation: "+s.URL+": line 1: did not find expected node content")
	s.say(http.StatusOK, strings.Repeat("#", document.MaxSize+1))
	r.await([]string{dbPod, webPod}, "fetch manifest "+s.URL+": the manifest is larger than 10 MiB")
	s.say(http.StatusNotFound, "")
	r.await([]string{dbPod, webPod}, "fetch manifest "+s.URL+": the server returned 404 Not Found")
	if len(r.deleted) > 0 || r.get(webPod) != web {
		t.Errorf("deleted: %v", r.deleted)
	}

	s.say(http.StatusOK, manifestOf("web", "a"))
	r.await([]string{webPod})
	if r.get(webPod) != web {
		t.Error("the pod was replaced although the manifest is the same")
	}
	s.say(http.StatusOK, "apiVersion: v1\nkind: PodList\nitems: []\n")
	r.await(nil)
}

// A server that does not answer does not delay the end of Run.
func TestURLHangs(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	r := start(t, Options{URL: s.URL, URLPeriod: time.Hour})
	<-asked
	r.stop()
}
