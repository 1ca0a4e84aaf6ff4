package runtime_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkSandbox measures how long the calls of a sandbox without containers take, one after the other, and the calls
// of 30 sandboxes at once. It prints minimum, median and 99th percentile.
//
//	go test -run '^$' -bench Sandbox -benchtime 100x ./internal/runtime
func BenchmarkSandbox(b *testing.B) {
	dir := scratchWithImage(b)
	agent := serveChild(b, dir, selfPath)
	b.Cleanup(func() { kill(b, agent) })
	c := newClient(b, dial(b, dir), dir)
	b.Cleanup(func() { removeNetwork(b, dir) })
	for name, mode := range map[string]cri.NamespaceMode{"pod": cri.NamespaceMode_POD, "host": cri.NamespaceMode_NODE} {
		b.Run(name, func(b *testing.B) {
			var run, stop, remove []time.Duration
			for i := range b.N {
				began := time.Now()
				id, _ := c.sandbox(b, &cri.PodSandboxConfig{Metadata: meta(fmt.Sprint("bench", i)),
					Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
						NamespaceOptions: &cri.NamespaceOption{Network: mode}}}})
				run, began = append(run, time.Since(began)), time.Now()
				_, err := c.StopPodSandbox(b.Context(), &cri.StopPodSandboxRequest{PodSandboxId: id})
				if err != nil {
					b.Fatal(err)
				}
				stop, began = append(stop, time.Since(began)), time.Now()
				_, err = c.RemovePodSandbox(b.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: id})
				if err != nil {
					b.Fatal(err)
				}
				remove = append(remove, time.Since(began))
			}
			report(b, "run", run)
			report(b, "stop", stop)
			report(b, "remove", remove)
		})
	}
	b.Run("burst", func(b *testing.B) {
		var run, stop []time.Duration
		for i := range b.N {
			var ids [30]string
			began := time.Now()
			eachAtOnce(len(ids), func(k int) {
				ids[k], _ = c.sandbox(b, &cri.PodSandboxConfig{Metadata: meta(fmt.Sprint("burst", i, "-", k))})
			})
			run, began = append(run, time.Since(began)), time.Now()
			eachAtOnce(len(ids), func(k int) {
				_, err := c.StopPodSandbox(b.Context(), &cri.StopPodSandboxRequest{PodSandboxId: ids[k]})
				if err == nil {
					_, err = c.RemovePodSandbox(b.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: ids[k]})
				}
				if err != nil {
					b.Error(err)
				}
			})
			stop = append(stop, time.Since(began))
		}
		report(b, "run", run)
		report(b, "remove", stop)
	})
}

// eachAtOnce calls f with each number below n, all at once, and waits.
func eachAtOnce(n int, f func(int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { f(i) })
	}
	calls.Wait()
}

// report adds the minimum, median and 99th percentile of durations to the result of a benchmark.
func report(b *testing.B, what string, all []time.Duration) {
	slices.Sort(all)
	for name, at := range map[string]int{"min": 0, "p50": len(all) / 2, "p99": len(all) * 99 / 100} {
		b.ReportMetric(float64(all[at].Microseconds())/1000, what+"-"+name+"-ms")
	}
}
