package pleg

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRelistsAreMeasured(t *testing.T) {
	run(t, asIs, func(t *testing.T, b *bench) {
		reg := prometheus.NewPedanticRegistry()
		if err := b.pleg.Register(reg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if h := f.Metric[0].Histogram; h != nil && (h.GetSampleCount() < 8 || h.GetSampleCount() > 15) {
				t.Errorf("%s: %d relists in an hour", f.GetName(), h.GetSampleCount())
			}
		}
		if last := testutil.ToFloat64(b.pleg.metrics.lastSeen); time.Since(time.Unix(int64(last), 0)) > 6*time.Minute {
			t.Errorf("the last relist was at %v", last)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		if !strings.HasPrefix(families[0].GetName(), "kubelet_pleg_") {
			t.Errorf("%v", families)
		}
	})
}
