package printer

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/terminal"
)

// Options choose the columns of a table.
type Options struct {
	Wide bool
	// Namespaces adds a column with the namespace.
	Namespaces bool
}

// columns joins the columns of a row: the namespace if Namespaces is set, narrow, and wide if Wide is set.
func (o Options) columns(namespace string, narrow, wide []string) []string {
	var all []string
	if o.Namespaces {
		all = append(all, namespace)
	}
	all = append(all, narrow...)
	if o.Wide {
		all = append(all, wide...)
	}
	return all
}

// Pods is a table of pods.
type Pods struct {
	*Table
	opts Options
}

// NewPods returns a table of pods.
func NewPods(w io.Writer, o Options) Pods {
	t := NewTable(w,
		o.columns("NAMESPACE", []string{"NAME", "READY", "STATUS", "RESTARTS", "AGE"}, []string{"IP", "NODE"})...)
	t.StyleText("READY", readyStyle)
	t.StyleText("STATUS", statusStyle)
	return Pods{t, o}
}

// Add adds a pod's row.
func (t Pods) Add(p *corev1.Pod, now time.Time) {
	s := summarize(p)
	restarts := fmt.Sprint(s.restarts)
	if s.restarts > 0 && !s.lastRestart.IsZero() {
		restarts += " (" + duration.HumanDuration(now.Sub(s.lastRestart)) + " ago)"
	}
	t.Row(t.opts.columns(p.Namespace,
		[]string{p.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.status, restarts, age(Created(p), now)},
		[]string{cmp.Or(p.Status.PodIP, "<none>"), cmp.Or(p.Spec.NodeName, "<none>")})...)
}

// Created returns the creation time of a pod. If it has none, it is the time when the agent accepted the
// pod.
func Created(p *corev1.Pod) metav1.Time {
	if p.CreationTimestamp.IsZero() && p.Status.StartTime != nil {
		return *p.Status.StartTime
	}
	return p.CreationTimestamp
}

func age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// Events is a table of events.
type Events struct {
	*Table
	opts Options
}

// NewEvents returns a table of events.
func NewEvents(w io.Writer, o Options) Events {
	t := NewTable(w, o.columns("NAMESPACE", []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"},
		[]string{"SUBOBJECT", "FIRST SEEN", "COUNT", "NAME"})...)
	t.StyleText("TYPE", eventStyle)
	return Events{t, o}
}

// Add adds an event's row.
func (t Events) Add(e *corev1.Event, now time.Time) {
	ref := e.InvolvedObject
	t.Row(t.opts.columns(e.Namespace,
		[]string{seen(e, now), e.Type, e.Reason, strings.ToLower(ref.Kind) + "/" + ref.Name, e.Message},
		[]string{cmp.Or(ref.FieldPath, "<none>"), age(e.FirstTimestamp, now), fmt.Sprint(e.Count), e.Name})...)
}

// seen returns the age of an event: "10s", or "10s (x3 over 5m)" for a repeated event.
func seen(e *corev1.Event, now time.Time) string {
	last := age(e.LastTimestamp, now)
	if e.Count > 1 {
		return fmt.Sprintf("%s (x%d over %s)", last, e.Count, age(e.FirstTimestamp, now))
	}
	return last
}

// Images writes a table of images, one row for each name.
func Images(w io.Writer, images []api.Image, o Options) error {
	t := NewTable(w, o.columns("", []string{"IMAGE", "IMAGE ID", "SIZE"}, []string{"STATE", "DIGEST"})...)
	t.StyleText("STATE", imageStyle)
	for _, i := range images {
		digest := "<none>"
		if len(i.Digests) > 0 {
			_, digest, _ = strings.Cut(i.Digests[0], "@")
		}
		names := i.Tags
		if len(names) == 0 {
			names = []string{"<none>"}
			if len(i.Digests) > 0 {
				names = i.Digests
			}
		}
		for _, name := range names {
			t.Row(o.columns("", []string{name, ShortID(i.ID), Bytes(i.Size)}, []string{imageState(i), digest})...)
		}
	}
	return t.Flush()
}

// ShortID returns the first 13 characters of an image or container id, without the algorithm.
func ShortID(id string) string {
	if _, hex, ok := strings.Cut(id, ":"); ok {
		id = hex
	}
	return id[:min(len(id), 13)]
}

// Bytes returns a size in decimal units, such as 812B or 1.4MB.
func Bytes(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%dB", n)
	}
	size, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB"} {
		size /= 1000
		if size < 1000 {
			break
		}
	}
	return fmt.Sprintf("%.1f%s", size, unit)
}

// Problems writes a table of faults that users have to correct.
func Problems(w io.Writer, problems []api.Problem, now time.Time) error {
	t := NewTable(w, "ORIGIN", "SINCE", "PROBLEM")
	t.StyleText("PROBLEM", func(string) terminal.Style { return terminal.Bad })
	for _, p := range problems {
		t.Row(p.Origin, age(p.Since, now), p.Message)
	}
	return t.Flush()
}
