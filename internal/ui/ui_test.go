package ui

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/servertest"
)

// start serves the page over a test's agent. It skips the test if the page was not built.
func start(t *testing.T) (*Server, *servertest.Agent) {
	t.Helper()
	if _, err := pageFiles(); err != nil {
		t.Skipf("%v; run make assets", err)
	}
	agent := servertest.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := Listen(ctx, 0, client.New(agent.Socket))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run() }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, agent
}

// visitor is a browser with its cookies.
type visitor struct {
	*http.Client
	base string
}

func newVisitor(t *testing.T, s *Server) visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return visitor{&http.Client{Jar: jar}, "http://" + s.at.Addr().String()}
}

// do sends a request. headers may include Host.
func (v visitor) do(t *testing.T, method, to string, headers map[string]string) (status int, body string,
	h http.Header) {
	t.Helper()
	if strings.HasPrefix(to, "/") {
		to = v.base + to
	}
	req, err := http.NewRequestWithContext(t.Context(), method, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := v.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data), resp.Header
}

func TestLinkWorksOnce(t *testing.T) {
	s, _ := start(t)
	link := s.Link()
	first, second := newVisitor(t, s), newVisitor(t, s)
	if code, _, _ := first.do(t, "GET", "/", nil); code != http.StatusUnauthorized {
		t.Errorf("without a link: %d, want 401", code)
	}
	if code, body, _ := first.do(t, "GET", link, nil); code != http.StatusOK || !strings.Contains(body, "main.js") {
		t.Errorf("the first use of a link: %d, %q", code, body)
	}
	if code, _, _ := second.do(t, "GET", link, nil); code != http.StatusUnauthorized {
		t.Errorf("the second use of a link: %d, want 401", code)
	}
	if code, _, _ := first.do(t, "GET", "/api/berth/v1/status", nil); code != http.StatusOK {
		t.Errorf("in the session: %d, want 200", code)
	}
	if code, _, _ := second.do(t, "GET", s.Link(), nil); code != http.StatusOK {
		t.Errorf("another link: %d, want 200", code)
	}
}

func TestCookieIsStrict(t *testing.T) {
	s, _ := start(t)
	v := newVisitor(t, s)
	v.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	code, _, h := v.do(t, "GET", s.Link(), nil)
	cookie, err := http.ParseSetCookie(h.Get("Set-Cookie"))
	if code != http.StatusSeeOther || h.Get("Location") != "/" || err != nil {
		t.Fatalf("%d to %q, %v", code, h.Get("Location"), err)
	}
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("cookie %s", cookie)
	}
	_, port, _ := strings.Cut(s.at.Addr().String(), ":")
	if cookie.Name != "berth-ui-"+port {
		t.Errorf("the cookie %s does not name port %s", cookie.Name, port)
	}
}

func TestForeignRequestsAreRefused(t *testing.T) {
	s, agent := start(t)
	p := agent.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	v := newVisitor(t, s)
	v.do(t, "GET", s.Link(), nil)
	own, web := v.base, "/api/api/v1/namespaces/default/pods/web"
	tests := []struct {
		name, method, path string
		headers            map[string]string
		want               int
	}{
		{"the page itself", "GET", web, map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{"localhost is a name of this server, where the browser has no cookie", "GET", "/",
			map[string]string{"Host": strings.Replace(own[7:], "127.0.0.1", "localhost", 1)}, 401},
		{"another name for this address (DNS rebinding)", "GET", web, map[string]string{"Host": "evil.example"}, 403},
		{"another name with our port", "GET", web,
			map[string]string{"Host": "evil.example:" + s.at.Addr().String()[10:]}, 403},
		{"the address with another port", "GET", web, map[string]string{"Host": "127.0.0.1:1"}, 403},
		{"a fetch from another site", "GET", web, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a fetch from another port of this host", "GET", web, map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"a request with another origin", "GET", web, map[string]string{"Origin": "http://evil.example"}, 403},
		{"a deletion from another origin", "DELETE", web, map[string]string{"Origin": "http://evil.example"}, 403},
		{"a deletion from a page without an origin", "DELETE", web, map[string]string{"Origin": "null"}, 403},
		{"a deletion without an origin", "DELETE", web, nil, 403},
		{"a restart without an origin", "POST", "/restart/default/web?uid=" + string(p.UID), nil, 403},
		{"a stop without an origin", "POST", "/stop/default/web?uid=" + string(p.UID), nil, 403},
		{"secrets", "GET", "/api/api/v1/secrets", nil, 404},
		{"objects, which the page does not read", "GET", "/api/api/v1/configmaps", nil, 404},
		{"an apply", "POST", "/api/berth/v1/pods", map[string]string{"Origin": own}, 405},
		{"files of a container", "GET", "/api/berth/v1/pods/default/web/files", nil, 404},
		{"a command in a container", "POST", web + "/exec?command=sh", map[string]string{"Origin": own}, 405},
		{"a way around the list", "GET", "/api/berth/v1/../../api/v1/secrets", nil, 404},
		{"a file outside the page", "GET", "/../assets/README.md", nil, 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, body, _ := v.do(t, tt.method, tt.path, tt.headers); got != tt.want {
				t.Errorf("%d, want %d: %s", got, tt.want, body)
			}
		})
	}
	if diff := cmp.Diff([]servertest.Deletion(nil), agent.Deleted()); diff != "" {
		t.Errorf("foreign requests deleted pods:\n%s", diff)
	}
	if code, body, _ := v.do(t, "DELETE", web, map[string]string{"Origin": own}); code != http.StatusOK {
		t.Errorf("delete from the page: %d: %s", code, body)
	}
	if len(agent.Deleted()) != 1 {
		t.Error("the page's own deletion did not reach the agent")
	}
}

// A refusal is in the language that the browser asks for first.
func TestRefusalsAreInTheUsersLanguage(t *testing.T) {
	s, _ := start(t)
	v := newVisitor(t, s)
	for _, tt := range []struct {
		path, language string
		headers        map[string]string
		status         int
		want           string
	}{
		{"/", "en-US,zh;q=0.5", nil, 401, "this link was used already, or its session has ended\nnext: "},
		{"/", "zh-CN,zh;q=0.9,en;q=0.8", nil, 401, "此链接已被使用，或其会话已结束\n下一步："},
		{"/", "", map[string]string{"Host": "evil.example"}, 403, otherHost},
		{"/", "zh", map[string]string{"Host": "evil.example"}, 403, "Host 标头指向另一台服务器"},
		{"/", "zh", map[string]string{"Origin": "http://evil.example"}, 403, "请求来自另一个来源"},
		{"/starts", "zh", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, "请求来自另一个网站"},
	} {
		headers := map[string]string{"Accept-Language": tt.language}
		maps.Copy(headers, tt.headers)
		if code, body, _ := v.do(t, "GET", tt.path, headers); code != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%q with %v: %d %q, want %d %q", tt.path, headers, code, body, tt.status, tt.want)
		}
	}
	if code, body, _ := v.do(t, "POST", "/", map[string]string{"Accept-Language": "zh"}); code != 403 ||
		!strings.Contains(body, "请求没有 Origin 标头") {
		t.Errorf("a POST without an origin: %d %q", code, body)
	}
}

func TestStreamsNeedOriginAndSession(t *testing.T) {
	s, agent := start(t)
	agent.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	v := newVisitor(t, s)
	v.do(t, "GET", s.Link(), nil)
	server := "ws" + v.base[4:]
	try := func(target string, jar http.CookieJar, origin string) (*websocket.Conn, int) {
		dialer := websocket.Dialer{Jar: jar}
		h := http.Header{}
		if origin != "" {
			h.Set("Origin", origin)
		}
		conn, resp, err := dialer.DialContext(t.Context(), target, h)
		if err != nil && resp == nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return conn, resp.StatusCode
	}
	for name, tt := range map[string]struct {
		jar    http.CookieJar
		origin string
		want   int
	}{
		"another site": {v.Jar, "http://evil.example", http.StatusForbidden},
		"no origin":    {v.Jar, "", http.StatusForbidden},
		"no session":   {nil, v.base, http.StatusUnauthorized},
	} {
		for _, path := range []string{"/live/api/v1/pods?watch=true", "/live/shell/default/web",
			"/live/berth/v1/usage"} {
			if _, got := try(server+path, tt.jar, tt.origin); got != tt.want {
				t.Errorf("%s, %s: %d, want %d", name, path, got, tt.want)
			}
		}
	}
	conn := v.dial(t, "/live/api/v1/pods?watch=true")
	if _, text, err := conn.ReadMessage(); err != nil || !strings.Contains(string(text), `"name":"web"`) {
		t.Errorf("first message %q, %v", text, err)
	}
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			break
		}
	}
	away := v.dial(t, "/live/api/v1/pods?watch=true")
	if kind, text, err := away.ReadMessage(); err != nil || kind != websocket.TextMessage ||
		!strings.Contains(string(text), "no agent runs on this root") {
		t.Errorf("without an agent the stream ends with %q, %v", text, err)
	}
	if _, _, err := away.ReadMessage(); !websocket.IsCloseError(err, ended) {
		t.Errorf("without an agent the stream ends with %v, want code %d", err, ended)
	}
}

func TestEveryAnswerHasThePolicy(t *testing.T) {
	s, _ := start(t)
	v := newVisitor(t, s)
	for _, path := range []string{"/", "/?token=wrong", s.Link(), "/main.js", "/main.css", "/nothing",
		"/api/berth/v1/status", "/api/api/v1/namespaces/default/pods/none"} {
		_, _, h := v.do(t, "GET", path, nil)
		if got := h.Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: policy %q", path, got)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "data:") {
		t.Errorf("the policy allows something inline or foreign: %s", policy)
	}
}

func TestPolicyNamesTheInlineScript(t *testing.T) {
	files, err := pageFiles()
	if err != nil {
		t.Skipf("%v; run make assets", err)
	}
	text, err := unpack(files["index.html"])
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := bytes.Cut(text, []byte("<script>"))
	script, _, _ = bytes.Cut(script, []byte("</script>"))
	if got := source(script); got != reloads {
		t.Errorf("the inline script of the page is %s, the policy allows %s", got, reloads)
	}
}

// A small page is quick over slow links, and keeps the binary small.
func TestPageIsSmall(t *testing.T) {
	files, err := pageFiles()
	if err != nil {
		t.Skipf("%v; run make assets", err)
	}
	size := 0
	for _, content := range files {
		size += len(content)
	}
	t.Logf("the page has %d bytes, compressed", size)
	if size > 350<<10 {
		t.Errorf("the page has %d bytes, compressed; at most 350 KiB", size)
	}
}

// TestStopGivesADeadlineAndRestartRemovesIt compares the manifests that the agent gets.
func TestStopGivesADeadlineAndRestartRemovesIt(t *testing.T) {
	for name, own := range map[string]*int64{"without a deadline": nil, "with a deadline": new(int64(600))} {
		t.Run(name, func(t *testing.T) {
			s, agent := start(t)
			p := agent.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"},
				Spec: corev1.PodSpec{ActiveDeadlineSeconds: own,
					Containers: []corev1.Container{{Name: "app", Image: "web:1"}}}})
			v := newVisitor(t, s)
			v.do(t, "GET", s.Link(), nil)
			applied := make(chan *corev1.Pod, 1)
			agent.OnApply(func(p *corev1.Pod) { applied <- p })
			ask := func(what string, uid types.UID) *corev1.Pod {
				if code, body, _ := v.do(t, "POST", "/"+what+"/default/web?uid="+string(uid),
					map[string]string{"Origin": v.base}); code != http.StatusOK {
					t.Fatalf("%s: %d: %s", what, code, body)
				}
				return <-applied
			}
			stopped := ask("stop", p.UID)
			if d := stopped.Spec.ActiveDeadlineSeconds; d == nil || *d != 1 {
				t.Errorf("stopped with the deadline %v", d)
			}
			again := ask("restart", stopped.UID)
			if diff := cmp.Diff(own, again.Spec.ActiveDeadlineSeconds); diff != "" {
				t.Errorf("deadline after the restart: %s", diff)
			}
			if _, kept := again.Annotations[annotationStopped]; kept {
				t.Errorf("annotations after the restart: %v", again.Annotations)
			}
		})
	}
}

func TestRestartReplacesThePod(t *testing.T) {
	s, agent := start(t)
	p := agent.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"kubernetes.io/config.hash": "1", "note": "kept"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "web:1"}}},
	})
	v := newVisitor(t, s)
	v.do(t, "GET", s.Link(), nil)
	own := map[string]string{"Origin": v.base}
	if code, body, _ := v.do(t, "POST", "/restart/default/web?uid=another", own); code != http.StatusConflict {
		t.Errorf("restart of a pod that was replaced: %d: %s", code, body)
	}
	applied := make(chan *corev1.Pod, 1)
	agent.OnApply(func(p *corev1.Pod) { applied <- p })
	if code, body, _ := v.do(t, "POST", "/restart/default/web?uid="+string(p.UID), own); code != http.StatusOK {
		t.Fatalf("restart: %d: %s", code, body)
	}
	now := <-applied
	if now.Annotations["note"] != "kept" || now.Annotations["kubernetes.io/config.hash"] != "" ||
		now.Annotations[annotationRestarted] == "" || now.Labels["app"] != "web" {
		t.Errorf("applied %+v", now.ObjectMeta)
	}
}

// dial opens a WebSocket of the page as the page does.
func (v visitor) dial(t *testing.T, path string) *websocket.Conn {
	t.Helper()
	u, err := url.Parse(v.base)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Origin": {v.base}}
	for _, c := range v.Jar.Cookies(u) { // the cookie jar knows http addresses only
		h.Add("Cookie", c.String())
	}
	conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+v.base[4:]+path, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = resp.Body.Close()
		_ = conn.Close() // it may be closed already
	})
	return conn
}

func TestShellIsATerminal(t *testing.T) {
	s, agent := start(t)
	p := servertest.Pod("web", "app")
	servertest.Run(p)
	agent.Put(p)
	v := newVisitor(t, s)
	v.do(t, "GET", s.Link(), nil)
	conn := v.dial(t, "/live/shell/default/web?container=app")
	write := func(kind int, text string) {
		if err := conn.WriteMessage(kind, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	shown := ""
	until := func(want string) {
		for !strings.Contains(shown, want) {
			_, text, err := conn.ReadMessage()
			if err != nil {
				t.Fatalf("%v, after %q", err, shown)
			}
			shown += string(text)
		}
	}
	write(websocket.TextMessage, `{"columns":100,"rows":30}`)
	until("$ ")
	write(websocket.BinaryMessage, "size\r")
	until("100x30")
	write(websocket.BinaryMessage, "exit 3\r")
	until("command ended with exit code 3")
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, ended) {
		t.Errorf("the shell ends with %v, want code %d", err, ended)
	}
	none := v.dial(t, "/live/shell/default/web?container=none")
	if _, text, err := none.ReadMessage(); err != nil || !strings.Contains(string(text), `"none"`) {
		t.Errorf("a shell in a container that does not exist: %q, %v", text, err)
	}
}
