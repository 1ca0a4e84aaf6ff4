package browser

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
)

// tasks records the tasks of the page's thread, until the returned function is called. That returns the CPU time of the
// longest one. Other programs that use the machine at the same time do not count.
func (b *page) tasks() (longest func() time.Duration) {
	b.t.Helper()
	type thread struct{ Pid, Tid int }
	var (
		mu    sync.Mutex
		most  = map[thread]time.Duration{}
		named = map[thread]string{}
		done  = make(chan struct{})
	)
	chromedp.ListenTarget(b.ctx, func(ev any) {
		switch ev := ev.(type) {
		case *tracing.EventDataCollected:
			mu.Lock()
			defer mu.Unlock()
			for _, raw := range ev.Value {
				var e struct {
					thread
					Name string
					Tdur int64 // CPU time in microseconds
					Args struct{ Name string }
				}
				if err := json.Unmarshal(raw, &e); err != nil {
					continue // arguments of events that do not matter here
				}
				switch e.Name {
				case "RunTask":
					most[e.thread] = max(most[e.thread], time.Duration(e.Tdur)*time.Microsecond)
				case "thread_name":
					named[e.thread] = e.Args.Name
				}
			}
		case *tracing.EventTracingComplete:
			close(done)
		}
	})
	b.run(tracing.Start().WithTransferMode(tracing.TransferModeReportEvents).WithTraceConfig(&tracing.TraceConfig{
		IncludedCategories: []string{"disabled-by-default-devtools.timeline"}, ExcludedCategories: []string{"*"}}))
	return func() time.Duration {
		b.t.Helper()
		b.run(chromedp.ActionFunc(func(ctx context.Context) error { return tracing.End().Do(ctx) }))
		select {
		case <-done:
		case <-b.ctx.Done():
			b.t.Fatal("the browser reports no tasks")
		}
		mu.Lock()
		defer mu.Unlock()
		var longest time.Duration
		for th, used := range most {
			if named[th] == "CrRendererMain" {
				longest = max(longest, used)
			}
		}
		if longest == 0 {
			b.t.Error("the browser does not measure the tasks of the page")
		}
		return longest
	}
}
