package join

import (
	"errors"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/cluster/kubeapi"
)

func TestAwayAfterTwoSecondsOfFailures(t *testing.T) {
	refused := errors.New("connection refused")
	at := func(s float64) time.Time { return time.Unix(1000, int64(s*1e9)) }
	for name, c := range map[string]struct {
		state kubeapi.State
		want  bool
		again time.Duration
	}{
		"no request yet": {kubeapi.State{}, false, 0},
		"it answers":     {kubeapi.State{Since: at(0)}, false, 0},
		"one refused connection": {kubeapi.State{Since: at(0), Err: refused, First: at(0), Last: at(0)}, false,
			recheck},
		"refused, now slow to answer": {kubeapi.State{Since: at(0), Err: refused, First: at(0), Last: at(1.9)}, false,
			recheck},
		"refused for long":           {kubeapi.State{Since: at(0), Err: refused, First: at(0), Last: at(2)}, true, 0},
		"one request without answer": {kubeapi.State{Since: at(10), Err: refused, First: at(0), Last: at(10)}, true, 0},
	} {
		if got, again := away(c.state); got != c.want || again != c.again {
			t.Errorf("%s: away %t, again in %v; want %t, %v", name, got, again, c.want, c.again)
		}
	}
}
