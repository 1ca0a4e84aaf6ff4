package ui

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/record/timeline"
)

func TestStepTimesGroupBySteps(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	span := func(name string, kind timeline.Kind, ms int) timeline.Span {
		return timeline.Span{Name: name, Kind: kind, Start: at, End: at.Add(time.Duration(ms) * time.Millisecond)}
	}
	var starts []timeline.Timeline
	for i := range 100 {
		starts = append(starts, timeline.Timeline{What: "pod start", Spans: []timeline.Span{
			span("pod start", timeline.KindStep, i+1),
			span("container app", timeline.KindStep, 2*(i+1)), span("container log", timeline.KindStep, 500),
			span("image app", timeline.KindWait, 10), span("example.com/app:1", timeline.KindImage, 10),
			{Name: "sandbox", Kind: timeline.KindStep, Start: at}, // has not ended
		}})
	}
	want := []stepTime{
		{"pod start", timeline.KindStep, 100, 50, 99},
		{"container", timeline.KindStep, 200, 200, 500},
		{"image", timeline.KindWait, 100, 10, 10},
		{"pull", timeline.KindImage, 100, 10, 10},
	}
	if diff := cmp.Diff(want, stepTimes(starts)); diff != "" {
		t.Error(diff)
	}
	if got := stepTimes(nil); got == nil || len(got) != 0 {
		t.Errorf("without starts: %v", got)
	}
}

func TestConcealLeavesOutWhatIsOrLooksLikeASecret(t *testing.T) {
	const state = `
metadata:
  annotations: {note: plain, example.com/password: p, kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec:
  volumes: [{name: keys, secret: {secretName: db-password}}]
  containers:
  - name: app
    env: [{name: A, value: b}, {name: B, valueFrom: {secretKeyRef: {name: db, key: password}}}]
    args: [--user, me, --password, hunter2, --api-key=abc, "https://me:pw@example.com/x", "https://example.com:80/x@y"]
    livenessProbe: {httpGet: {httpHeaders: [{name: Authorization, value: Bearer abc}]}}
status:
  message: 'secret "db" not found; token: abc, Authorization: Bearer def; password="x y" for me'
`
	const want = `
metadata:
  annotations: {note: plain, example.com/password: (left out)}
spec:
  volumes: [{name: keys, secret: {secretName: db-password}}]
  containers:
  - name: app
    env: [{name: A, value: (left out)}, {name: B, valueFrom: {secretKeyRef: {name: db, key: password}}}]
    args: [--user, me, --password, (left out), --api-key=(left out), "https://(left out)@example.com/x",
      "https://example.com:80/x@y"]
    livenessProbe: {httpGet: {httpHeaders: [{name: Authorization, value: (left out)}]}}
status:
  message: 'secret "db" not found; token: (left out), Authorization: Bearer (left out); password="(left out)" for me'
`
	if diff := cmp.Diff(decoded(t, want), conceal("", decoded(t, state))); diff != "" {
		t.Error(diff)
	}
}

func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}
