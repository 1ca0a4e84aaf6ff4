package browser

import (
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// TestLostRequests loses the first request for each file that the page loads, and for the YAML that it shows, as
// Chromium does when a pod that starts changes the machine's network.
func TestLostRequests(t *testing.T) {
	for _, lost := range []string{"main.js", "chunk-*.js", "main.css", "web"} {
		t.Run(lost, func(t *testing.T) {
			b := open(t, running("web"))
			again := b.loseFirst(lost)
			b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(b.server+"/#/pod/default/web/YAML"))
			select {
			case <-again:
			case <-b.ctx.Done():
				t.Fatalf("the page does not ask for %s again after it was lost; it shows: %s", lost, b.text())
			}
			b.wait(`document.querySelector(".top") !== null`)
			b.wait(`getComputedStyle(document.querySelector(".top")).display === "flex"`)
			b.shows("kind: Pod")
		})
	}
}

// loseFirst makes the browser lose its first request for a file whose name matches a pattern. The returned channel is
// closed when it asks for such a file again.
func (b *page) loseFirst(pattern string) <-chan struct{} {
	b.t.Helper()
	again := make(chan struct{})
	var seen atomic.Int32
	chromedp.ListenTarget(b.ctx, func(ev any) {
		request, ok := ev.(*fetch.EventRequestPaused)
		if !ok {
			return
		}
		name, _, _ := strings.Cut(path.Base(request.Request.URL), "?")
		answer := chromedp.Action(fetch.ContinueRequest(request.RequestID))
		if matched, _ := path.Match(pattern, name); matched {
			switch seen.Add(1) {
			case 1:
				answer = fetch.FailRequest(request.RequestID, network.ErrorReasonConnectionReset)
			case 2:
				close(again)
			}
		}
		go func() { _ = chromedp.Run(b.ctx, answer) }() // a listener must not wait for the browser
	})
	b.run(fetch.Enable())
	return again
}
