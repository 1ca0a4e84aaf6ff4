package volume

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestOperationsAreCounted(t *testing.T) {
	v := New(Config{})
	reg := prometheus.NewPedanticRegistry()
	if err := v.Register(reg); err != nil {
		t.Fatal(err)
	}
	v.metrics.observe(operation{"kubernetes.io~empty-dir", "volume_mount", false}, time.Now(), nil)
	v.metrics.observe(operation{"kubernetes.io~csi", "volume_unmount", true}, time.Now(), errors.New("busy"))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range families[0].Metric {
		line := ""
		for _, l := range m.Label {
			line += l.GetValue() + " "
		}
		got = append(got, line)
	}
	want := "false volume_mount success kubernetes.io/empty-dir \ntrue volume_unmount fail-unknown kubernetes.io/csi "
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if n, err := testutil.GatherAndCount(reg, "volume_manager_total_volumes"); n != 0 || err != nil {
		t.Errorf("%d series of mounted volumes, %v", n, err)
	}
}
