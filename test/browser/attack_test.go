package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// A name of the attacker that leads to this machine opens nothing, even with a valid link. The link stays valid for its
// user.
func TestDNSRebindingIsRefused(t *testing.T) {
	b := open(t, running("web"))
	b.shows("web")
	link := b.link()
	rebound := strings.Replace(link, "127.0.0.1", "evil.example", 1)
	b.run(chromedp.Navigate(rebound))
	b.shows("the Host header names another server")
	var cookies []*network.Cookie
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		cookies, err = network.GetCookies().WithURLs([]string{rebound}).Do(ctx)
		return err
	}))
	if len(cookies) != 0 {
		t.Errorf("the attacker's name got %d cookies", len(cookies))
	}
	b.run(chromedp.Navigate(link))
	b.shows("Why it waits")
}

// attempts are what a page of an attacker tries against the page's server, by name, with the results.
const attempts = `(async server => {
	const pod = "/api/api/v1/namespaces/default/pods/web";
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
})`

// Another server on this machine is another origin of the same site, so the browser sends the cookie with its requests.
// The checks of Origin and Sec-Fetch-Site refuse them. The browser sends no cookie from a truly other site.
func TestAnotherSiteCannotUseTheSession(t *testing.T) {
	for _, tt := range []struct {
		name, host string
		cookie     bool
	}{{"another port", "127.0.0.1", true}, {"another site", "evil.example", false}} {
		t.Run(tt.name, func(t *testing.T) { visitEvil(t, tt.host, tt.cookie) })
	}
}

// visitEvil lets a page of an attacker at a host try everything. cookie says whether the browser sends the session's
// cookie with the attempts.
func visitEvil(t *testing.T, host string, cookie bool) {
	web := running("web")
	web.UID = "web-uid"
	b := open(t, web)
	b.shows("web")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<title>evil</title><p>evil page")) // it fails only if the browser is gone
	}))
	t.Cleanup(evil.Close)
	var sent, refused atomic.Int32
	chromedp.ListenTarget(b.ctx, func(ev any) {
		switch e := ev.(type) {
		case *network.EventRequestWillBeSentExtraInfo:
			for _, c := range e.AssociatedCookies {
				if strings.HasPrefix(c.Cookie.Name, "berth-ui-") && len(c.BlockedReasons) == 0 {
					sent.Add(1)
				}
			}
		case *network.EventResponseReceivedExtraInfo:
			if e.StatusCode == http.StatusForbidden {
				refused.Add(1)
			}
		}
	})
	b.run(network.Enable(), chromedp.Navigate(strings.Replace(evil.URL, "127.0.0.1", host, 1)))
	b.shows("evil page")
	var results map[string]string
	b.run(chromedp.Evaluate(attempts+`(`+quote(b.server)+`)`, &results, awaitPromise))
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
	if cookie != (sent.Load() > 0) {
		t.Errorf("the browser sent %d cookies, expected: %t", sent.Load(), cookie)
	}
	if refused.Load() == 0 {
		t.Error("the server refused no request, so this test shows nothing")
	}

	// A form and a link on the page leave it, which the browser does not forbid. The cookie is strict, so the server
	// does not know the user who follows a link of another site.
	form := `<form method=post action="` + b.server + `/stop/default/web?uid=web-uid">`
	if status := b.leave(form + `<button id=go>free</button></form>`); status != http.StatusForbidden {
		t.Errorf("a form of the other site: status %d, want 403", status)
	}
	if !cookie {
		b.run(chromedp.Navigate(strings.Replace(evil.URL, "127.0.0.1", host, 1)))
		if status := b.leave(`<a id=go href="` + b.server + `/">free</a>`); status != http.StatusUnauthorized {
			t.Errorf("a link of the other site: status %d, want 401", status)
		}
	}
	if n := len(b.agent.Deleted()) + len(b.agent.Applied()); n != 0 {
		t.Errorf("the other site reached the agent %d times", n)
	}
}

// leave replaces the page by a text, clicks on the element "go" in it, and returns the status of the answer.
func (b *page) leave(html string) int64 {
	b.t.Helper()
	answer, err := chromedp.RunResponse(b.ctx, chromedp.Evaluate(`document.body.innerHTML = `+quote(html)+`;
		document.querySelector("#go").click()`, nil))
	if err != nil {
		b.t.Fatalf("leave the page: %v", err)
	}
	return answer.Status
}
