package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest/fake"
)

func ids(images []Image) (all []string) {
	for _, i := range images {
		all = append(all, i.ID)
	}
	return all
}

func TestDecide(t *testing.T) {
	now := time.Unix(100_000, 0)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	images := []Image{
		{ID: "used", Used: true, FirstSeen: ago(900)},
		{ID: "pinned", Pinned: true, FirstSeen: ago(900)},
		{ID: "imported", Imported: true, FirstSeen: ago(900)},
		{ID: "recent", FirstSeen: ago(60), LastUsed: ago(1)},
		{ID: "new", FirstSeen: ago(1)},
		{ID: "old", FirstSeen: ago(60), LastUsed: ago(50)},
		{ID: "never", FirstSeen: ago(30)},
		{ID: "tomorrow", FirstSeen: ago(-1440)},
	}
	thresholds := Thresholds{High: 85, Low: 80, MinAge: 2 * time.Minute, MaxAge: 40 * time.Minute}
	if diff := cmp.Diff([]string{"never", "tomorrow", "old", "recent"},
		ids(candidates(images, thresholds, now))); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"old"}, ids(expired(images, thresholds, now))); diff != "" {
		t.Errorf("expired (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"imported", "never", "new", "tomorrow", "old", "recent"},
		ids(unused(images, true))); diff != "" {
		t.Errorf("unused (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		high, low int
		disk      Disk
		want      int64
	}{
		{85, 80, Disk{1000, 160}, 0},
		{85, 80, Disk{1000, 150}, 50},
		{85, 80, Disk{1000, 0}, 200},
		{100, 80, Disk{1000, 0}, 0},
		{85, 80, Disk{}, 0},
		{1, 0, Disk{1000, 900}, 100},
	} {
		if got := excess(Thresholds{High: c.high, Low: c.low}, c.disk); got != c.want {
			t.Errorf("%+v: %d, want %d", c, got, c.want)
		}
	}
}

func TestFind(t *testing.T) {
	images := []Image{
		{ID: "sha256:aabbccdd", Tags: []string{"docker.io/library/busybox:latest"}},
		{ID: "sha256:aabbccee", Digests: []string{"registry.io/app@sha256:" + strings.Repeat("1", 64)}},
	}
	for name, want := range map[string][]string{
		"busybox": {"sha256:aabbccdd"}, "docker.io/library/busybox:latest": {"sha256:aabbccdd"}, "busybox:1": nil,
		"registry.io/app@sha256:" + strings.Repeat("1", 64): {"sha256:aabbccee"},
		"sha256:aabbccee": {"sha256:aabbccee"}, "aabbccd": {"sha256:aabbccdd"},
		"aabb": {"sha256:aabbccdd", "sha256:aabbccee"}, "aab": nil, "": nil,
	} {
		if diff := cmp.Diff(want, ids(find(images, name))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
}

// eventLog collects events.
type eventLog []string

func (e *eventLog) Event(ref corev1.ObjectReference, _, reason, format string, args ...any) {
	*e = append(*e, fmt.Sprintf("%s %s: "+format, append([]any{ref.Kind, reason}, args...)...))
}

// Whoever shows the images lists them again after each wake. So a list that finds nothing new wakes nobody.
func TestChangedWakesWhenThereAreOtherImages(t *testing.T) {
	n := newNode(t, t.TempDir())
	changed := n.Changed().C()
	woken := func() bool {
		select {
		case <-changed:
			changed = n.Changed().C()
			return true
		default:
			return false
		}
	}
	for _, step := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"the first list", func() error { return nil }, true},
		{"another program has pulled", func() error { n.fake.AddImage("registry.test/a:1"); return nil }, true},
		{"nothing new", func() error { return nil }, false},
		{"a pull", func() error { n.Look(); return nil }, true},
		{"an import", func() error { return n.Imported("sha256:1") }, true},
		{"a removal", func() error { _, err := n.Remove(t.Context(), "registry.test/a:1", true); return err }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if _, err := n.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := woken(); got != step.want {
			t.Errorf("%s: woken %v, want %v", step.name, got, step.want)
		}
		woken()
	}
}

// node is a Collector on the fake runtime.
type node struct {
	*Collector
	fake   *fake.Runtime
	disk   Disk
	wanted []string
	gone   []string
	events eventLog
	now    time.Time
}

// Pods returns a pod whose containers and volumes have the wanted images.
func (n *node) Pods() []*corev1.Pod {
	p := &corev1.Pod{}
	for i, image := range n.wanted {
		if i%2 == 0 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Image: image})
			continue
		}
		source := corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image}}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: source})
	}
	return []*corev1.Pod{p}
}

func (n *node) Forget(id string) error {
	n.gone = append(n.gone, id)
	return nil
}

func newNode(t *testing.T, dir string) *node {
	t.Helper()
	n := &node{fake: fake.New(t), disk: Disk{Capacity: 100 << 20, Available: 50 << 20}, now: time.Unix(1000, 0)}
	client := n.fake.Client(cri.Options{})
	n.Collector = New(Options{
		Images: client.Images, Containers: client.Runtime, Dir: dir, Events: &n.events,
		Node: corev1.ObjectReference{Kind: "Node"},
		Pods: n, Records: n, Sandboxes: []string{"registry.test/pause:1"},
		Thresholds: Thresholds{High: 85, Low: 80, MinAge: 2 * time.Minute},
		Disk:       func(context.Context) (Disk, error) { return n.disk, nil },
		Now:        func() time.Time { return n.now }, Log: slog.New(slog.DiscardHandler),
	})
	if err := n.Load(); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) tags(t *testing.T) (all []string) {
	t.Helper()
	images, err := n.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		all = append(all, i.Tags...)
	}
	slices.Sort(all)
	return all
}

func TestCollect(t *testing.T) {
	n := newNode(t, t.TempDir())
	for _, name := range []string{"registry.test/a:1", "registry.test/b:1", "registry.test/c:1",
		"registry.test/mine:1"} {
		n.fake.AddImage(name)
	}
	n.wanted = []string{fake.Image, "registry.test/a:1"}
	mine, err := n.Find(t.Context(), "registry.test/mine:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Imported(mine.ID); err != nil {
		t.Fatal(err)
	}
	collect := func() error {
		n.now = n.now.Add(5 * time.Minute)
		return n.Collect(t.Context())
	}
	if err := collect(); err != nil || len(n.tags(t)) != 5 {
		t.Errorf("with room: %v, left %v", err, n.tags(t))
	}
	n.disk.Available = 15 << 20 // 5 MiB must be freed, each image has 1 MiB
	err = collect()
	want := []string{fake.Image, "registry.test/a:1", "registry.test/mine:1"}
	if diff := cmp.Diff(want, n.tags(t)); diff != "" || len(n.gone) != 2 {
		t.Errorf("removed %v (-want +got):\n%s", n.gone, diff)
	}
	if space, age := testutil.ToFloat64(n.removed.WithLabelValues(forSpace)),
		testutil.ToFloat64(n.removed.WithLabelValues(forAge)); space != 2 || age != 0 {
		t.Errorf("counted %v for space and %v for age", space, age)
	}
	const removed = "Node ImagesRemoved: removed 2 unused images (2097152 bytes), because the file system of " +
		"images is 85% full: registry.test/"
	if err == nil || len(n.events) != 2 || !strings.HasPrefix(n.events[0], removed) ||
		!strings.HasPrefix(n.events[1], "Node FreeDiskSpaceFailed: Insufficient free disk space") {
		t.Errorf("error %v, events %q", err, n.events)
	}
	if _, err := n.Remove(t.Context(), "registry.test/a:1", false); !errors.Is(err, ErrInUse) {
		t.Errorf("removed what is in use: %v", err)
	}
	if gone, err := n.Prune(t.Context(), true); err != nil || len(gone) != 1 ||
		gone[0].Tags[0] != "registry.test/mine:1" {
		t.Errorf("pruned %v, %v", gone, err)
	}
}

// A file system that runs full takes all unused images, but for young ones, and for imported ones only if the
// configuration allows it.
func TestReclaim(t *testing.T) {
	for imported, want := range map[bool][]string{
		false: {fake.Image, "registry.test/mine:1", "registry.test/young:1"},
		true:  {fake.Image, "registry.test/young:1"},
	} {
		n := newNode(t, t.TempDir())
		n.opts.Thresholds.Imported = imported
		n.wanted = []string{fake.Image}
		n.fake.AddImage("registry.test/a:1")
		n.fake.AddImage("registry.test/mine:1")
		mine, err := n.Find(t.Context(), "registry.test/mine:1")
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Imported(mine.ID); err != nil {
			t.Fatal(err)
		}
		n.now = n.now.Add(5 * time.Minute)
		n.fake.AddImage("registry.test/young:1")
		gone, err := n.Reclaim(t.Context(), "imagefs.available is short")
		if diff := cmp.Diff(want, n.tags(t)); diff != "" || err != nil {
			t.Errorf("imported %v: removed %v, %v, left (-want +got):\n%s", imported, ids(gone), err, diff)
		}
		if len(n.events) != 1 || !strings.Contains(n.events[0], "because imagefs.available is short: registry.test/") {
			t.Errorf("events %q", n.events)
		}
	}
}

func TestRemovedMessage(t *testing.T) {
	var gone []Image
	for i := range shown + 2 {
		gone = append(gone, Image{ID: fmt.Sprint("sha256:", i), Size: 10})
	}
	const want = "removed 7 unused images (70 bytes), because of this: sha256:0, sha256:1, sha256:2, sha256:3, " +
		"sha256:4 and 2 more"
	if got := removedMessage(gone, "of this"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The ledger of last uses and imports survives a restart.
func TestLedger(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.wanted = []string{fake.Image}
	before, err := n.Find(t.Context(), fake.Image)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Imported(before.ID); err != nil {
		t.Fatal(err)
	}
	again := newNode(t, dir)
	again.now = n.now.Add(time.Hour)
	after, err := again.Find(t.Context(), fake.Image)
	if err != nil || !after.Imported || after.Used || !after.LastUsed.Equal(before.LastUsed) ||
		!after.FirstSeen.Equal(before.FirstSeen) {
		t.Errorf("%+v, %v; was %+v", after, err, before)
	}
}
