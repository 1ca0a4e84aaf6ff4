package resize

import (
	"bytes"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
	"github.com/berth-run/berth/internal/model/pod"
)

// FuzzRecord reads the allocated resources of a pod and applies them to its spec.
func FuzzRecord(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "u1.json", Version: 1,
		Seeds: []string{
			`{"key":"u1","value":{"allocated":{"app":{"requests":{"cpu":"100m"},"limits":{"memory":"64Mi"}}},` +
				`"actuated":{"app":{"id":"c1","resources":{"limits":{"cpu":"1"}},"restart":true}},"resizing":true}}`,
			`{"key":"u1","value":{"allocated":null}}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			var log bytes.Buffer
			l := newLedger(Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err := l.Load(); err != nil {
				t.Fatal(err)
			}
			e := l.pods["u1"]
			if e == nil {
				return "", log.String()
			}
			p := &pod.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}}
			p.Spec.Containers = []corev1.Container{{Name: "app"}}
			return checkpointtest.Show([]any{e.record, sized(p, e.Allocated).Spec}), log.String()
		},
	})
}
