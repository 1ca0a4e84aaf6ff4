package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/base/golden"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/node/history"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// web returns a plain HTTP client for an agent's socket.
func web(a *servertest.Agent) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Socket)
		},
	}}
}

// ask makes a request and returns the code and the body of the answer.
func ask(t *testing.T, a *servertest.Agent, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://berth"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web(a).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// brief shortens an error answer to its code, reason, message and next step.
func brief(t *testing.T, body string) string {
	t.Helper()
	var st metav1.Status
	if err := json.Unmarshal([]byte(body), &st); err != nil || st.Kind != "Status" || st.APIVersion != "v1" {
		t.Fatalf("not a Status: %s", body)
	}
	next := ""
	if st.Details != nil {
		for _, c := range st.Details.Causes {
			if c.Type == api.CauseNextStep {
				next = c.Message
			}
		}
	}
	return fmt.Sprintf("%d %s: %s -> %s", st.Code, st.Reason, st.Message, next)
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func TestErrors(t *testing.T) {
	a := servertest.Start(t)
	two := servertest.Pod("two", "app", "side")
	servertest.Run(two)
	a.Put(two)
	a.Put(servertest.Pod("new", "app"))
	const pods = "/api/v1/namespaces/default/pods"
	tests := []struct{ method, path, body, want string }{
		{"GET", pods + "/none", "",
			`404 NotFound: pods "default/none" not found -> list the pods of this node with "berth get pods -A"`},
		{"GET", "/api/v1/nodes", "", "404 NotFound: the agent has no route /api/v1/nodes -> GET / lists the routes"},
		{"PUT", pods, "",
			"405 MethodNotAllowed: PUT is not allowed on /api/v1/namespaces/default/pods -> use GET"},
		{"GET", pods + "?wathc=1", "",
			`400 BadRequest: unknown query parameter "wathc" -> this route knows: labelSelector, fieldSelector, ` +
				`resourceVersion, resourceVersionMatch, limit, continue, watch, allowWatchBookmarks, ` +
				`sendInitialEvents, timeoutSeconds, timeout`},
		{"GET", pods + "?watch=maybe", "",
			`400 BadRequest: query parameter watch="maybe" is not true or false -> set watch to true or false, or ` +
				`leave it out`},
		{"GET", pods + "?fieldSelector=spec.image=x", "",
			`400 BadRequest: fieldSelector: unknown field "spec.image" -> known fields: metadata.name, ` +
				`metadata.namespace, metadata.uid, spec.hostNetwork, spec.nodeName, spec.restartPolicy, ` +
				`spec.schedulerName, spec.serviceAccountName, status.nominatedNodeName, status.phase, status.podIP`},
		{"GET", pods + "?watch=1&resourceVersion=7", "",
			"410 Expired: resourceVersion 7 is too old: it is 1000000002 now -> list again, or watch without a " +
				"resourceVersion"},
		{"GET", "/api/v1/events?watch=1&resourceVersion=x", "",
			`400 BadRequest: resourceVersion "x" is not one of this server -> take one from a list of events, or ` +
				`watch without a resourceVersion`},
		{"GET", pods + "/two/log", "", "400 BadRequest: pod default/two has several containers -> name one: app, side"},
		{"GET", pods + "/two/log?container=x", "",
			`400 BadRequest: container "x" is not in pod default/two -> its containers: app, side`},
		{"GET", pods + "/two/log?container=app", "",
			`404 NotFound: log "default/two/app/0" not found -> logs of earlier instances are removed with their ` +
				`containers`},
		{"GET", pods + "/two/log?tailLines=-1", "",
			`422 Invalid: query parameter tailLines="-1" is not a number of at least 0 -> set tailLines to a number ` +
				`of at least 0, or leave it out`},
		{"GET", pods + "/two/log?tailLines=all", "",
			`400 BadRequest: query parameter tailLines="all" is not a number of at least 0 -> set tailLines to a ` +
				`number of at least 0, or leave it out`},
		{"GET", pods + "/two/log?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", "",
			"422 Invalid: sinceSeconds and sinceTime exclude each other -> give one of them"},
		{"GET", pods + "/two/log?stream=both", "",
			`422 Invalid: query parameter stream="both" is not All, Stdout or Stderr -> set stream to All, ` +
				`Stdout or Stderr, or leave it out`},
		{"GET", pods + "/new/log", "",
			`400 BadRequest: container "app" in pod "new" is waiting to start: its pod is pending -> see why with ` +
				`"berth describe pod new -n default"`},
		{"POST", pods + "/new/exec?command=sh", "",
			`400 BadRequest: container "app" of pod default/new is not running -> see why with "berth describe pod ` +
				`new -n default"`},
		{"POST", pods + "/two/exec", "", "400 BadRequest: no command to run -> give one or more command parameters"},
		{"DELETE", pods + "/none", "",
			`404 NotFound: pods "default/none" not found -> list the pods of this node with "berth get pods -A"`},
		{"DELETE", pods + "/two?gracePeriodSeconds=soon", "",
			`400 BadRequest: query parameter gracePeriodSeconds="soon" is not a number of at least 0 -> set ` +
				`gracePeriodSeconds to a number of at least 0, or leave it out`},
		{"DELETE", pods + "/two", `{"gracePeriodSeconds":-1}`,
			"400 BadRequest: gracePeriodSeconds is negative -> give 0 or more, or leave it out"},
		{"DELETE", pods + "/two", `{"dryRun":["All"]}`,
			"400 BadRequest: dryRun is not supported for a deletion -> leave it out, or read the pod with GET instead"},
		{"DELETE", pods + "/two", "{",
			"400 BadRequest: read DeleteOptions: unexpected EOF -> send DeleteOptions of meta/v1 as JSON, or no body"},
		{"POST", "/berth/v1/pods/default/two/conditions", "{",
			"400 BadRequest: read body: unexpected EOF -> send one JSON object, as docs/local-api.md shows it"},
		{"GET", pods + "?labelSelector=%zz", "",
			`400 BadRequest: malformed query: invalid URL escape "%zz" -> escape the query as RFC 3986 says`},
		{"GET", pods + "?continue=x", "",
			"400 BadRequest: query parameter continue is not supported: every list is one answer -> leave out " +
				"continue"},
		{"GET", pods + "?resourceVersion=1&resourceVersionMatch=Exact", "",
			`400 BadRequest: query parameter resourceVersionMatch="Exact" is not NotOlderThan -> set ` +
				`resourceVersionMatch to NotOlderThan, or leave it out`},
		{"GET", pods + "?timeout=soon", "",
			`400 BadRequest: query parameter timeout="soon" is not a duration like 30s -> set timeout to a duration ` +
				`like 30s, or leave it out`},
		{"GET", pods + "/two/log?sinceTime=noon", "",
			`400 BadRequest: query parameter sinceTime="noon" is not a time like 2006-01-02T15:04:05Z -> set ` +
				`sinceTime to a time like 2006-01-02T15:04:05Z, or leave it out`},
		{"DELETE", pods + "/two", `{"preconditions":{"uid":"other"}}`,
			`409 Conflict: Operation cannot be fulfilled on pods "two": it has another UID -> another pod has this ` +
				`name now: look at it with "berth get pods", and delete it by name`},
		{"POST", "/berth/v1/pods?origin=web.yaml", "spec: {}\nimgae: x",
			"400 BadRequest: web.yaml: line 2: imgae: unknown field -> correct the manifest"},
		{"POST", "/berth/v1/pods?lease=gone", "",
			`409 Conflict: lease "gone" is not held -> open one with POST /berth/v1/leases and keep its connection ` +
				`open`},
		{"POST", "/berth/v1/pods?lease=gone&keep=true", "",
			"400 BadRequest: a pod cannot be kept and bound to a lease at once -> leave out keep or lease"},
		{"POST", "/berth/v1/pods?dryRun=Some", "", `400 BadRequest: query parameter dryRun="Some" is not ` +
			`All -> set dryRun to All, or leave it out`},
		{"POST", "/berth/v1/pods?origin=big.yaml", strings.Repeat(" ", api.MaxManifest+1),
			"413 RequestEntityTooLarge: big.yaml: manifests are limited to 10 MiB -> apply fewer at a time"},
		{"GET", "/berth/v1/pods/default/two/timeline", "",
			`404 NotFound: no start of pod default/two is recorded -> the last starts are kept: "berth trace" lists ` +
				`them, "berth get pods -A" the pods`},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			code, body := ask(t, a, tt.method, tt.path, tt.body)
			got := brief(t, body)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, next, _ := strings.Cut(got, " -> "); next == "" {
				t.Error("no next step")
			}
			if !strings.HasPrefix(tt.want, fmt.Sprint(code, " ")) {
				t.Errorf("answered with code %d", code)
			}
		})
	}
}

// lines reads the answer of a watch line by line.
type lines struct {
	t *testing.T
	*bufio.Scanner
	close func() error
}

func watchLines(t *testing.T, a *servertest.Agent, path string) *lines {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://berth"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web(a).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("watch %s: %s", path, resp.Status)
	}
	return &lines{t, bufio.NewScanner(resp.Body), resp.Body.Close}
}

// next returns the next line as "TYPE name phase", or "end".
func (l *lines) next() string {
	l.t.Helper()
	if !l.Scan() {
		if l.Err() != nil {
			l.t.Errorf("the watch does not end cleanly: %v", l.Err())
		}
		return "end"
	}
	var line struct {
		Type   string
		Object corev1.Pod
	}
	if err := json.Unmarshal(l.Bytes(), &line); err != nil {
		l.t.Fatal(err)
	}
	p := line.Object
	if p.Kind != "Pod" || p.APIVersion != "v1" || p.ResourceVersion == "" {
		l.t.Errorf("incomplete object: %s", l.Bytes())
	}
	if line.Type == "BOOKMARK" {
		return "BOOKMARK " + p.Annotations[metav1.InitialEventsAnnotationKey]
	}
	return strings.TrimSpace(line.Type + " " + p.Name + " " + string(p.Status.Phase))
}

func (l *lines) want(want ...string) {
	l.t.Helper()
	for _, w := range want {
		if got := l.next(); got != w {
			l.t.Fatalf("watch says %q, want %q", got, w)
		}
	}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

// A request for a pod waits until a starting agent has found its pods. It does not get a 404 before.
func TestRequestsWaitUntilSettled(t *testing.T) {
	for _, test := range []struct {
		name       string
		known      bool
		wait       time.Duration
		wantStatus int
	}{
		{"known after 3 s", true, 3 * time.Second, http.StatusOK},
		{"a source that does not answer", false, 10 * time.Second, http.StatusNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settled, table, began := make(chan struct{}), store.New[types.NamespacedName, *corev1.Pod](), time.Now()
				if test.known {
					time.AfterFunc(test.wait, func() {
						table.Put(types.NamespacedName{Namespace: "default", Name: "one"}, &corev1.Pod{})
						close(settled)
					})
				}
				h := server.New(server.Options{Pods: table, Settled: settled, Started: began}).Handler()
				for _, wait := range []time.Duration{test.wait, 0} {
					begin, answer := time.Now(), httptest.NewRecorder()
					h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/pods/one", nil))
					if took := time.Since(begin); answer.Code != test.wantStatus || took != wait {
						t.Errorf("%d after %v, want %d after %v", answer.Code, took, test.wantStatus, wait)
					}
				}
			})
		})
	}
}

func TestWatchPods(t *testing.T) {
	a := servertest.Start(t)
	a.Put(servertest.Pod("b", "app"))
	a.Put(servertest.Pod("a", "app"))
	w := watchLines(t, a, "/api/v1/pods?watch=1&allowWatchBookmarks=1")
	w.want("ADDED a Pending", "ADDED b Pending", "BOOKMARK true")
	a.Change(key("a"), phase(corev1.PodRunning))
	w.want("MODIFIED a Running")
	a.Put(servertest.Pod("c", "app"))
	w.want("ADDED c Pending")
	a.Remove(key("c"))
	w.want("DELETED c Pending")
	a.Finish(key("a"), 0)
	a.Remove(key("a")) // the watch may miss the state before; it must report the last state all the same
	got := w.next()
	if got == "MODIFIED a Succeeded" {
		got = w.next()
	}
	if got != "DELETED a Succeeded" {
		t.Errorf("the last event is %q", got)
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	w.want("end")
}

func TestWatchSelectedPods(t *testing.T) {
	a := servertest.Start(t)
	a.Put(servertest.Pod("a", "app"))
	a.Put(servertest.Pod("b", "app"))
	w := watchLines(t, a, "/api/v1/namespaces/default/pods?watch=1&fieldSelector=status.phase%3DPending")
	w.want("ADDED a Pending", "ADDED b Pending")
	a.Change(key("a"), phase(corev1.PodRunning))
	w.want("DELETED a Running")
	a.Change(key("a"), phase(corev1.PodPending))
	w.want("ADDED a Pending")
}

func TestWatchEndsAfterTimeout(t *testing.T) {
	a := servertest.Start(t)
	a.Put(servertest.Pod("a", "app"))
	for _, limit := range []string{"timeoutSeconds=1", "timeout=10ms"} {
		watchLines(t, a, "/api/v1/pods?watch=1&"+limit).want("ADDED a Pending", "end")
	}
}

// A slow reader gets the last state of each pod, not every state.
func TestWatchCoalesces(t *testing.T) {
	a := servertest.Start(t)
	a.Put(servertest.Pod("a", "app"))
	w := watchLines(t, a, "/api/v1/pods?watch=1")
	w.want("ADDED a Pending")
	const changes = 20_000
	for i := range changes {
		a.Change(key("a"), func(p *corev1.Pod) { p.Status.Message = strings.Repeat("x", 100) + fmt.Sprint(i) })
	}
	a.Change(key("a"), phase(corev1.PodRunning))
	seen := 0
	for got := ""; got != "MODIFIED a Running"; seen++ {
		got = w.next()
	}
	if seen > changes {
		t.Errorf("%d lines for %d changes", seen, changes)
	}
}

func TestWatchContinuesFromList(t *testing.T) {
	a := servertest.Start(t)
	a.Put(servertest.Pod("a", "app"))
	list, err := client.New(a.Socket).Pods(t.Context(), client.Select{})
	if err != nil {
		t.Fatal(err)
	}
	w := watchLines(t, a, "/api/v1/pods?watch=1&allowWatchBookmarks=1&resourceVersion="+list.ResourceVersion)
	a.Put(servertest.Pod("b", "app"))
	w.want("ADDED b Pending")
	a.Remove(key("a"))
	w.want("DELETED a Pending")
}

func TestListPods(t *testing.T) {
	a := servertest.Start(t)
	code, body := ask(t, a, "GET", "/api/v1/pods", "")
	if want := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1000000000"},"items":[]}` +
		"\n"; code != 200 || body != want {
		t.Errorf("no pods: %d %s", code, body)
	}
	for _, name := range []string{"b", "a"} {
		p := servertest.Pod(name, "app")
		p.Labels = map[string]string{"name": name}
		a.Put(p)
	}
	far := servertest.Pod("a", "app")
	far.Namespace = "far"
	a.Put(far)
	for path, want := range map[string]string{
		"/api/v1/pods":                                      "default/a default/b far/a ",
		"/api/v1/namespaces/far/pods":                       "far/a ",
		"/api/v1/pods?labelSelector=name%3Db":               "default/b ",
		"/api/v1/pods?fieldSelector=metadata.name%3Da":      "default/a far/a ",
		"/api/v1/pods?limit=1&resourceVersion=0&timeout=1s": "default/a default/b far/a ",
	} {
		_, body := ask(t, a, "GET", path, "")
		var list corev1.PodList
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range list.Items {
			got += p.Namespace + "/" + p.Name + " "
		}
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestApplyAndDelete(t *testing.T) {
	a := servertest.Start(t)
	const two = "metadata: {name: a}\nspec: {}\n---\nmetadata: {name: b, namespace: far}\n"
	_, body := ask(t, a, "POST", "/berth/v1/pods?origin=two.yaml", two)
	want := `{"kind":"ApplyResultList","apiVersion":"berth.run/v1","items":[` +
		`{"kind":"Pod","namespace":"default","name":"a","uid":"uid-1","action":"created"},` +
		`{"kind":"Pod","namespace":"far","name":"b","uid":"uid-2","action":"created"}]}` + "\n"
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("apply (-want +got):\n%s", diff)
	}
	ask(t, a, "POST", "/berth/v1/pods?namespace=far&keep=false&dryRun=All", "metadata: {name: a}")
	wantApplied := []server.ApplyOptions{
		{Origin: "two.yaml", Keep: true},
		{Origin: "request", Namespace: "far", DryRun: true},
	}
	if diff := cmp.Diff(wantApplied, a.Applied()); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}

	code, body := ask(t, a, "DELETE", "/api/v1/namespaces/default/pods/a?gracePeriodSeconds=5",
		`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":9,"propagationPolicy":"Background"}`)
	var p corev1.Pod
	if err := json.Unmarshal([]byte(body), &p); err != nil || code != 200 || p.DeletionTimestamp == nil ||
		p.Kind != "Pod" {
		t.Errorf("delete: %d %s", code, body)
	}
	ask(t, a, "DELETE", "/api/v1/namespaces/far/pods/b", "")
	grace := 5 * time.Second
	if diff := cmp.Diff([]servertest.Deletion{{Key: key("a"), Grace: &grace},
		{Key: types.NamespacedName{Namespace: "far", Name: "b"}}}, a.Deleted()); diff != "" {
		t.Errorf("deletions (-want +got):\n%s", diff)
	}
}

func TestEvents(t *testing.T) {
	a := servertest.Start(t)
	p := a.Put(servertest.Pod("web", "app"))
	ref := event.PodRef(p)
	a.Events.Event(ref, corev1.EventTypeNormal, "Pulling", "pulling image")
	other := servertest.Pod("other", "app")
	a.Events.Event(event.PodRef(other), corev1.EventTypeWarning, "Failed", "no")

	_, body := ask(t, a, "GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dweb", "")
	var list corev1.EventList
	if err := json.Unmarshal([]byte(body),
		&list); err != nil || len(list.Items) != 1 || list.Items[0].Reason != "Pulling" || list.Kind != "EventList" {
		t.Errorf("events of web: %s", body)
	}
	read := func(w *lines) string {
		if !w.Scan() {
			return "end"
		}
		var line struct {
			Type   string
			Object corev1.Event
		}
		if err := json.Unmarshal(w.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %s %d", line.Type, line.Object.Reason, line.Object.Count)
	}
	w := watchLines(t, a, "/api/v1/events?watch=1&allowWatchBookmarks=true&fieldSelector=involvedObject.name%3Dweb")
	later := watchLines(t, a, "/api/v1/events?watch=1&resourceVersion="+list.ResourceVersion)
	got := []string{read(w), read(w)}
	a.Events.Event(ref, corev1.EventTypeNormal, "Pulling", "pulling image")
	got = append(got, read(w), read(later))
	if diff := cmp.Diff([]string{"ADDED Pulling 1", "BOOKMARK  0", "MODIFIED Pulling 2", "MODIFIED Pulling 2"},
		got); diff != "" {
		t.Errorf("watch (-want +got):\n%s", diff)
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if got := read(w); got != "end" {
		t.Errorf("after the agent's end: %s", got)
	}
}

func TestLogs(t *testing.T) {
	a := servertest.Start(t)
	p := servertest.Pod("web", "app")
	servertest.Run(p)
	p = a.Put(p)
	a.WriteLog(t, p, "app", 0, "one", "two")
	a.WriteLog(t, p, "app", 1, "three")
	a.Change(key("web"), func(p *corev1.Pod) { servertest.Restart(p, 0, 1) })
	const log = "/api/v1/namespaces/default/pods/web/log"
	for query, want := range map[string]string{
		"":                                "three\n",
		"?previous":                       "one\ntwo\n",
		"?instance=0&tailLines=1":         "two\n",
		"?instance=0&limitBytes=2":        "on",
		"?timestamps=1":                   "2026-03-01T12:00:00.000000001Z three\n",
		"?stream=Stderr":                  "",
		"?sinceSeconds=1":                 "",
		"?instance=0&follow=true":         "one\ntwo\n", // that instance has ended
		"?sinceTime=2026-03-01T12:00:00Z": "three\n",
	} {
		if code, got := ask(t, a, "GET", log+query, ""); code != 200 || got != want {
			t.Errorf("%s: %d %q, want %q", query, code, got, want)
		}
	}
}

func TestFollowedLogEndsWithContainer(t *testing.T) {
	a := servertest.Start(t)
	p := servertest.Pod("web", "app")
	servertest.Run(p)
	p = a.Put(p)
	a.WriteLog(t, p, "app", 0, "one")
	w := watchLines(t, a, "/api/v1/namespaces/default/pods/web/log?follow=1")
	line := func() string {
		if !w.Scan() {
			return fmt.Sprint("end ", w.Err())
		}
		return w.Text()
	}
	got := []string{line()}
	a.WriteLog(t, p, "app", 0, "two")
	got = append(got, line())
	a.Finish(key("web"), 0)
	got = append(got, line())
	if diff := cmp.Diff([]string{"one", "two", "end <nil>"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// leased opens a lease and applies a pod under it.
func leased(t *testing.T, a *servertest.Agent, name string) *client.Lease {
	t.Helper()
	lease, err := client.New(a.Socket).Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(a.Socket).Apply(t.Context(), []byte("metadata: {name: "+name+"}"),
		client.Apply{Lease: lease.ID}); err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestLeaseEndsItsPods(t *testing.T) {
	a := servertest.Start(t)
	deleted := make(chan string, 1)
	a.OnDelete(func(p *corev1.Pod) { deleted <- p.Name })
	lease := leased(t, a, "web")
	if opts := a.Applied()[0]; opts.Keep || !opts.CreateOnly {
		t.Errorf("applied with %+v", opts)
	}
	lease.Close()
	if name := <-deleted; name != "web" {
		t.Errorf("deleted %s", name)
	}
}

func TestApplyUnbindsPodFromLease(t *testing.T) {
	a := servertest.Start(t)
	deleted := make(chan string, 2)
	a.OnDelete(func(p *corev1.Pod) { deleted <- p.Name })
	lease := leased(t, a, "web")
	held := leased(t, a, "other")
	if code, body := ask(t, a, "POST", "/berth/v1/pods", "metadata: {name: web}"); code != 200 {
		t.Fatalf("apply: %d %s", code, body)
	}
	lease.Close() // web is no longer bound to it
	held.Close()
	if name := <-deleted; name != "other" {
		t.Errorf("deleted %s", name)
	}
	_, err := client.New(a.Socket).Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lease = leased(t, a, "third")
	defer lease.Close()
	_, err = client.New(a.Socket).Apply(t.Context(), []byte("metadata: {name: web}"), client.Apply{Lease: lease.ID})
	if err == nil || err.Error() != `pods "web" already exists` {
		t.Errorf("a pod that is there, under a lease: %v", err)
	}
}

func TestShutdownKeepsLeasedPods(t *testing.T) {
	a := servertest.Start(t)
	leased(t, a, "web")
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := a.Deleted(); len(got) > 0 {
		t.Errorf("deleted %v", got)
	}
}

func TestNodeRoutes(t *testing.T) {
	a := servertest.Start(t)
	a.SetImages(api.Image{ID: "sha256:1", Tags: []string{"app:v1"}, Size: 7})
	a.SetTimelines(timeline.Timeline{Namespace: "default", Name: "web", UID: "u",
		Spans: []timeline.Span{{ID: "1", Name: "pod start"}}})
	a.SetHistory(history.Sample{Time: 1000}, history.Sample{Time: 1001, Values: [10]float32{1, -1}})
	tests := []struct{ method, path, body, want string }{
		{"GET", "/healthz", "", "ok\n"},
		{"GET", "/metrics", "", ""},
		{"GET", "/berth/v1/images", "", `"items":[{"id":"sha256:1","tags":["app:v1"],"size":7}]`},
		{"POST", "/berth/v1/images", "a tar", `"items":[{"id":"sha256:1","tags":["app:v1"],"size":7}]`},
		{"GET", "/berth/v1/status", "", `{"kind":"Status","apiVersion":"berth.run/v1","node":"node"`},
		{"GET", "/berth/v1/pods/default/web/timeline", "", `"spans":[{"id":"1","name":"pod start"`},
		{"GET", "/berth/v1/timelines", "", `"kind":"TimelineList"`},
		{"GET", "/berth/v1/history?sinceTime=1970-01-01T00:16:40Z", "",
			`"times":[1001],"samples":[[1,-1,0,0,0,0,0,0,0,0]]`},
		{"GET", "/berth/v1/timelines?last=1", "", `"spans":[{"id":"1","name":"pod start"`},
	}
	for _, tt := range tests {
		if code, body := ask(t, a, tt.method, tt.path, tt.body); code != 200 || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, code, body)
		}
	}
	if got := string(a.Loaded()); got != "a tar" {
		t.Errorf("loaded %q", got)
	}
	a.SetHealth(errors.New("runtime does not answer"))
	_, body := ask(t, a, "GET", "/healthz", "")
	if got := brief(t,
		body); got != `503 ServiceUnavailable: runtime does not answer -> see "berth get problems" and the agent's `+
		`log` {
		t.Errorf("unhealthy: %s", got)
	}
}

// docs/local-api.md lists every route.
func TestRoutesAreDocumented(t *testing.T) {
	const file = "../../../docs/local-api.md"
	answer := httptest.NewRecorder()
	server.New(server.Options{}).Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	var list api.RouteList
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	table.WriteString("| method | path | parameters | what |\n| --- | --- | --- | --- |\n")
	for _, r := range list.Items {
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s |\n", r.Method, r.Path, strings.Join(r.Query, " "), r.Doc)
	}
	golden.Section(t, file, "<!-- routes -->\n", "<!-- end -->", table.String())
}
