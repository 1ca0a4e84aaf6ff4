package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A name of the attacker that leads to this machine opens nothing, even with a valid link.
func TestDNSRebindingIsRefused(t *testing.T) {
	b := open(t, running("web"))
	b.shows("web")
	_, port, _ := strings.Cut(strings.TrimPrefix(b.server, "http://"), ":")
	b.run(chromedp.Navigate("http://evil.example:" + port + "/"))
	b.shows("the Host header names another server")
}

// Another server on this machine is another origin of the same site, so the browser sends the cookie with its requests.
// The checks of Origin and Sec-Fetch-Site refuse them.
func TestAnotherSiteCannotUseTheSession(t *testing.T) {
	web := running("web")
	web.UID = "web-uid"
	b := open(t, web)
	b.shows("web")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<title>evil</title><p>evil page")) // it fails only if the browser is gone
	}))
	t.Cleanup(evil.Close)
	sent := make(chan bool, 100)
	chromedp.ListenTarget(b.ctx, func(ev any) {
		if e, ok := ev.(*network.EventRequestWillBeSentExtraInfo); ok {
			for _, c := range e.AssociatedCookies {
				if strings.HasPrefix(c.Cookie.Name, "berth-ui-") && len(c.BlockedReasons) == 0 {
					sent <- true
				}
			}
		}
	})
	b.run(network.Enable(), chromedp.Navigate(evil.URL))
	b.shows("evil page")
	var results map[string]string
	b.run(chromedp.Evaluate(`(async () => {
		const server = `+quote(b.server)+`, pod = "/api/api/v1/namespaces/default/pods/web";
		const outcome = (name, p) => p.then(v => [name, v], e => [name, "refused"]);
		const socket = path => new Promise((done, failed) => {
			const s = new WebSocket(server.replace("http", "ws") + path);
			s.onopen = () => done("open");
			s.onerror = failed;
		});
		const element = (tag, attributes) => new Promise((done, failed) => {
			const e = Object.assign(document.createElement(tag), attributes);
			e.onload = () => done("loaded");
			e.onerror = failed;
			document.body.append(e);
		});
		const include = {credentials: "include"}, simple = {...include, mode: "no-cors", method: "POST"};
		return Object.fromEntries(await Promise.all([
			outcome("read", fetch(server + pod, include).then(r => r.text())),
			outcome("read opaquely", fetch(server + pod, {...include, mode: "no-cors"}).then(r => r.type)),
			outcome("delete", fetch(server + pod, {...include, method: "DELETE"}).then(r => r.status)),
			outcome("restart", fetch(server + "/restart/default/web?uid=web-uid", simple).then(r => r.type)),
			outcome("stop", fetch(server + "/stop/default/web?uid=web-uid", simple).then(r => r.type)),
			outcome("watch", socket("/live/api/v1/pods?watch=true")),
			outcome("shell", socket("/live/shell/default/web?container=app")),
			outcome("script", element("script", {src: server + "/main.js"})),
		]));
	})()`, &results, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	for _, name := range []string{"read", "delete", "watch", "shell", "script"} {
		if results[name] != "refused" {
			t.Errorf("%s: %q", name, results[name])
		}
	}
	for _, name := range []string{"read opaquely", "restart", "stop"} {
		if r := results[name]; r != "refused" && r != "opaque" {
			t.Errorf("%s: %q", name, r)
		}
	}
	select {
	case <-sent:
	default:
		t.Error("the browser sent no cookie, so this test shows nothing")
	}
	if n := len(b.agent.Deleted()) + len(b.agent.Applied()); n != 0 {
		t.Errorf("the other site reached the agent %d times", n)
	}
}
