package resize

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// FuzzKubelet reads the allocations of a kubelet that ran last, as a whole file or as data with a valid checksum. A
// damaged file is named. The files for the next kubelet name the same pods, and this agent does not read them as a
// kubelet's.
func FuzzKubelet(f *testing.F) {
	const info = `{"entries":{"u1":{"ContainerResources":{"app":{"requests":{"cpu":"100m"},` +
		`"limits":{"memory":"64Mi"}},"":{}},"PodLevelResources":{"limits":{"memory":"1Gi"}}},` +
		`"u2":{"ContainerResources":null}}}`
	whole := func(data string) []byte {
		text, err := json.Marshal(sealed{Data: data, Checksum: sum(data)})
		if err != nil {
			f.Fatal(err)
		}
		return text
	}
	const slow = `{"entries":{"u1":{"PodLevelResources":{"limits":{"cpu":"1e-9999999"}}}}}`
	for _, data := range []string{info, `{"entries":{"u1":null}}`, "null", slow} {
		f.Add([]byte(data), true)
		f.Add(whole(data), false)
	}
	f.Add([]byte(`{"data":"{}","checksum":1}`), false)
	f.Add([]byte(`{"data":"","checksum":18446744073709551615,"writer":"berth"}`), false)
	f.Fuzz(func(t *testing.T, content []byte, isData bool) {
		if isData {
			content = whole(string(content))
		}
		kubelet := t.TempDir()
		path := filepath.Join(kubelet, allocatedFile)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		read := func() *ledger {
			l := newLedger(Options{Dir: t.TempDir(), KubeletDir: kubelet,
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err := l.Load(); err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := read()
		if _, err := unseal(content); err != nil && !strings.Contains(log.String(), path) {
			t.Errorf("the report does not name %s: %q", path, log.String())
		} else if err != nil && len(l.pods) > 0 {
			t.Errorf("a damaged file was read: %+v", l.pods)
		}
		want := map[string]podInfo{}
		for uid, e := range l.pods {
			p := &pod.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}}
			p.Spec.Containers = []corev1.Container{{Name: "app"}}
			_ = sized(p, e.Allocated)
			want[string(uid)] = infoOf(e.Allocated)
		}
		if err := mirror(l); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var s sealed
		var again struct{ Entries map[string]podInfo }
		if err := json.Unmarshal(text, &s); err != nil || s.Checksum != sum(s.Data) {
			t.Fatalf("a kubelet cannot read %s: %v", text, err)
		}
		if err := json.Unmarshal([]byte(s.Data), &again); err != nil {
			t.Fatalf("a kubelet cannot read %s: %v", text, err)
		}
		if a, b := checkpointtest.Show(want), checkpointtest.Show(again.Entries); len(want) > 0 && a != b {
			t.Errorf("a kubelet reads other allocations (-ours +its):\n%s", cmp.Diff(a, b))
		}
		if l := read(); len(l.pods) > 0 {
			t.Errorf("the agent takes its own file for a kubelet's: %+v", l.pods)
		}
	})
}
