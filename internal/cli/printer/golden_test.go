package printer

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api"
)

var update = flag.Bool("update", false, "write golden files")

// golden compares output with testdata/NAME.
func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s, write it with -update (-want +got):\n%s", path, diff)
	}
	for line := range strings.Lines(out.String()) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("%s: blanks at the end of %q", path, line)
		}
	}
}

func load[T any](t *testing.T, name string) *T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	v := new(T)
	if err := yaml.UnmarshalStrict(data, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func at(d time.Duration) metav1.Time { return metav1.NewTime(t0.Add(d)) }

func TestPods(t *testing.T) {
	pods := load[corev1.PodList](t, "pods.yaml")
	for name, o := range map[string]Options{"pods.txt": {}, "pods-wide.txt": {Wide: true, Namespaces: true}} {
		golden(t, name, func(w io.Writer) error {
			table := NewPods(w, o)
			for i := range pods.Items {
				table.Add(&pods.Items[i], t0.Add(90*time.Minute))
			}
			return table.Flush()
		})
	}
}

func TestDescribePod(t *testing.T) {
	pods := load[corev1.PodList](t, "pods.yaml")
	events := load[corev1.EventList](t, "events.yaml")
	now := t0.Add(90 * time.Minute)
	golden(t, "describe.txt", func(w io.Writer) error { return DescribePod(w, &pods.Items[0], events.Items, now) })
	golden(t, "describe-bare.txt", func(w io.Writer) error { return DescribePod(w, &pods.Items[1], nil, now) })
}

func TestEvents(t *testing.T) {
	events := load[corev1.EventList](t, "events.yaml")
	for name, o := range map[string]Options{"events.txt": {}, "events-wide.txt": {Wide: true, Namespaces: true}} {
		golden(t, name, func(w io.Writer) error {
			table := NewEvents(w, o)
			for i := range events.Items {
				table.Add(&events.Items[i], t0.Add(time.Hour))
			}
			return table.Flush()
		})
	}
}

func TestImagesAndProblems(t *testing.T) {
	images := []api.Image{
		{ID: "sha256:0123456789abcdef0123", Tags: []string{"example.test/web:v1", "example.test/web:latest"},
			Digests: []string{"example.test/web@sha256:beef"}, Size: 1_420_000},
		{ID: "sha256:fedcba98", Digests: []string{"example.test/old@sha256:cafe"}, Size: 812},
		{ID: "sha256:77", Size: 35_000_000_000, Pinned: true},
	}
	golden(t, "images.txt", func(w io.Writer) error { return Images(w, images, Options{}) })
	golden(t, "images-wide.txt", func(w io.Writer) error { return Images(w, images, Options{Wide: true}) })
	problems := []api.Problem{
		{Origin: "/etc/berth/manifests/web.yaml", Message: "line 7: spec.containers[0].imgae: unknown field",
			Since: at(0)},
		{Origin: "http://example.test/pods", Message: "connection refused", Since: at(-time.Hour)},
	}
	golden(t, "problems.txt", func(w io.Writer) error { return Problems(w, problems, t0.Add(time.Minute)) })
	golden(t, "problems-none.txt", func(w io.Writer) error { return Problems(w, nil, t0) })
}

// A table that grows over time keeps its column widths as long as the new rows fit.
func TestTableGoesOn(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out, "A", "LONG NAME", "C")
	for _, row := range [][]string{{"1", "x", "y"}, {"lönger", "x", "y\nz"}, {"2", "", "y"}} {
		table.Row(row...)
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	const want = "A   LONG NAME   C\n1   x           y\nlönger   x           y z\n2                    y\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 999: "999B", 1000: "1.0kB", 1_420_000: "1.4MB", 5e15: "5000.0TB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
}
